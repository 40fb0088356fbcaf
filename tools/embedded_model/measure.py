"""Measure the accuracy of a model folder on each skill: `python tools/embedded_model/measure.py FOLDER`.

Greedy answers of the NumPy engine to new questions, zero-shot and three-shot, as plain text and as chat. Sums are drawn
from the held-out pairs only.
"""

from __future__ import annotations

import argparse
import math
import sys
from functools import partial
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

import arithmetic
import stories
from assay.models.embedded.engine import EmbeddedEngine, PromptImage, TokenPrompt
from examples import Example, Skill
from training_rows import MIXTURE

SEED = 99
HELD_OUT: dict[Skill, Skill] = {
    skill: partial(skill, held_out=True)
    for skill in (arithmetic.short_sum, arithmetic.word_problem)  # sums that training never saw
}


def frame_plain(examples: list[Example]) -> str:
    """Return few-shot text that ends where the last answer starts."""
    parts = []
    for example in examples:
        text = example.question if example.raw else f"Question: {example.question}\nAnswer:"
        parts.append("<image>\n" * len(example.pictures) + text + " " + example.answer)
    return "\n\n".join(parts)[: -len(examples[-1].answer) - 1]


def frame_chat(examples: list[Example]) -> str:
    """Return chat turns that end where the last answer starts."""
    turns = [
        f"<|user|>{'<image>' * len(example.pictures)}{chr(10) * len(example.pictures)}{example.question}</s>"
        f"<|assistant|>{example.answer}</s>"
        for example in examples
    ]
    return "<s>" + "".join(turns)[: -len(examples[-1].answer) - len("</s>")]


def compute_accuracy(engine: EmbeddedEngine, skill: Skill, *, shots: int, chat: bool, count: int) -> float:
    """Return the share of exactly correct answers."""
    random = Random(SEED)
    correct = 0
    for number in range(count):
        examples = [skill(random) for _ in range(shots)]
        examples.append(HELD_OUT.get(skill, skill)(random))
        pictures = tuple(
            PromptImage(f"{number}-{index}", picture.copy)
            for index, picture in enumerate(picture for example in examples for picture in example.pictures)
        )
        ids = engine.encode((frame_chat if chat else frame_plain)(examples))
        engine.clear_caches()
        generated = engine.generate(TokenPrompt(ids, pictures), stop=["\n"], max_tokens=60)
        correct += generated.text.strip() == examples[-1].answer
    return correct / count


def compute_bits_per_character(engine: EmbeddedEngine, count: int = 30) -> float:
    """Return the bits per character of new stories."""
    random = Random(SEED)
    texts = [stories.write_story(random) for _ in range(count)]
    total = math.fsum(engine.compute_rolling_log_likelihood(text) for text in texts)
    return -total / sum(len(text) for text in texts) / math.log(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=100, help="questions per cell")
    arguments = parser.parse_args()
    engine = EmbeddedEngine(arguments.folder)
    print("skill             text 0-shot  text 3-shot  chat 0-shot  chat 3-shot")
    for _, skill in MIXTURE:
        cells = [
            compute_accuracy(engine, skill, shots=shots, chat=chat, count=arguments.count)
            for chat in (False, True)
            for shots in (0, 3)
        ]
        print(f"{skill.__name__:<17}" + "".join(f"{cell:>13.1%}" for cell in cells), flush=True)
    print(f"stories: {compute_bits_per_character(engine):.3f} bits per character")


if __name__ == "__main__":
    main()
