"""Write the data of the quickstart tasks: `python tools/embedded_model/make_tasks.py`.

Seeded, so a second run writes the same files. Sums come from the pairs held out from training.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from string import ascii_lowercase
from typing import Any

import arithmetic
import facts
import image_questions
import stories
from examples import Example

SEED = 2024
TASKS = Path(__file__).resolve().parents[2] / "src" / "assay" / "builtin_tasks" / "quickstart"
Row = dict[str, Any]


def make_addition_rows(random: Random) -> Iterable[Row]:
    """Word problems over held-out pairs."""
    for _ in range(100):
        first, second = arithmetic.draw_pair(random, held_out=True)
        name, thing = random.choice(arithmetic.NAMES), random.choice(arithmetic.THINGS)
        question = arithmetic.format_word_problem(name, thing, first, second)
        yield {"question": question, "answer": str(first + second)}


def make_fact_rows(random: Random) -> Iterable[Row]:
    """Facts with four choices, drawn evenly so that rare ones are included; some comparisons with two."""
    entries = [(table, *entry) for table in facts.TABLES.values() for entry in table.entries]
    for table, thing, answer in random.sample(entries, 80):
        choices = [answer, *facts.sample_wrong_answers(random, table, answer, 3)]
        random.shuffle(choices)
        yield {
            "question": facts.format_fact_question(table, thing),
            "choices": choices,
            "answer": choices.index(answer),
        }
    for number in range(20):
        example = (facts.larger_number if number % 2 else facts.larger_animal)(random)
        pair = example.question.removeprefix("Which is larger, ").removesuffix("?").split(" or ")
        choices = [thing.removeprefix("a ") for thing in pair]
        yield {"question": example.question, "choices": choices, "answer": choices.index(example.answer)}


def make_story_rows(random: Random) -> Iterable[Row]:
    """Fresh stories."""
    return ({"text": stories.write_story(random)} for _ in range(40))


def make_copy_rows(random: Random, count: int) -> Iterable[Row]:
    """Random words, some slightly longer than in training."""
    for _ in range(count):
        yield {"word": "".join(random.choices(ascii_lowercase, k=random.randint(3, 10)))}


def make_vote_rows(random: Random) -> Iterable[Row]:
    """Bare sums over held-out pairs."""
    for _ in range(40):
        first, second = arithmetic.draw_pair(random, held_out=True)
        yield {"first": first, "second": second, "answer": str(first + second)}


def make_shape_rows(random: Random, folder: Path) -> Iterable[Row]:
    """Questions of five kinds about images, which are written next to the data."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds: list[tuple[str, Callable[[Random], Example]]] = [
        ("one shape", image_questions.about_one_shape),
        ("one shape", image_questions.about_one_shape),
        ("count", image_questions.count_shapes),
        ("yes or no", image_questions.is_there),
        ("colour among others", image_questions.colour_among),
    ]
    for number in range(60):
        kind, make = kinds[number % len(kinds)]
        example = make(random)
        name = f"{number:02}.png"
        example.pictures[0].save(folder / name, optimize=True)
        yield {
            "image": f"shapes/{name}",
            "kind": kind,
            "question": example.question,
            "answer": example.answer,
        }


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """One JSON object per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=TASKS, help="the folder with the task files")
    data = parser.parse_args().output / "data"
    write_rows(data / "addition.jsonl", make_addition_rows(Random(f"{SEED} addition")))
    write_rows(data / "facts.jsonl", make_fact_rows(Random(f"{SEED} facts")))
    write_rows(data / "stories.jsonl", make_story_rows(Random(f"{SEED} stories")))
    write_rows(data / "copy.jsonl", make_copy_rows(Random(f"{SEED} copy"), 60))
    write_rows(data / "copy_examples.jsonl", make_copy_rows(Random(f"{SEED} copy examples"), 20))
    write_rows(data / "vote.jsonl", make_vote_rows(Random(f"{SEED} vote")))
    write_rows(data / "shapes.jsonl", make_shape_rows(Random(f"{SEED} shapes"), data / "shapes"))


if __name__ == "__main__":
    main()
