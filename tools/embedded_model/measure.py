"""How well a model folder does each skill: `python tools/embedded_model/measure.py FOLDER`.

Greedy answers of the NumPy engine to fresh questions, zero-shot and with three examples, as plain text and as
chat. Sums are drawn from the held-out pairs only.
"""

from __future__ import annotations

import argparse
import math
import sys
from functools import partial
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

import stories
import sums
from assay.models.embedded.engine import EmbeddedEngine, PromptImage, TokenPrompt
from examples import Example, Skill
from rows import MIXTURE

SEED = 99
HELD_OUT: dict[Skill, Skill] = {
    skill: partial(skill, held_out=True)
    for skill in (sums.short_sum, sums.word_problem)  # sums that training never saw
}


def frame_plain(examples: list[Example]) -> str:
    """Few-shot text that ends where the last answer starts."""
    parts = []
    for example in examples:
        text = example.question if example.raw else f"Question: {example.question}\nAnswer:"
        parts.append("<image>\n" * len(example.pictures) + text + " " + example.answer)
    return "\n\n".join(parts)[: -len(examples[-1].answer) - 1]


def frame_chat(examples: list[Example]) -> str:
    """The same as chat turns."""
    turns = [
        f"<|user|>{'<image>' * len(example.pictures)}{chr(10) * len(example.pictures)}{example.question}</s>"
        f"<|assistant|>{example.answer}</s>"
        for example in examples
    ]
    return "<s>" + "".join(turns)[: -len(examples[-1].answer) - len("</s>")]


def accuracy(engine: EmbeddedEngine, skill: Skill, *, shots: int, chat: bool, count: int) -> float:
    """Share of answers that are exactly right."""
    random = Random(SEED)
    right = 0
    for number in range(count):
        examples = [skill(random) for _ in range(shots)]
        examples.append(HELD_OUT.get(skill, skill)(random))
        pictures = tuple(
            PromptImage(f"{number}-{place}", picture.copy)
            for place, picture in enumerate(picture for example in examples for picture in example.pictures)
        )
        ids = engine.encode((frame_chat if chat else frame_plain)(examples))
        engine.clear_caches()
        generated = engine.generate(TokenPrompt(ids, pictures), stop=["\n"], max_tokens=60)
        right += generated.text.strip() == examples[-1].answer
    return right / count


def bits_per_character(engine: EmbeddedEngine, count: int = 30) -> float:
    """Of fresh stories."""
    random = Random(SEED)
    texts = [stories.random_story(random) for _ in range(count)]
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
            accuracy(engine, skill, shots=shots, chat=chat, count=arguments.count)
            for chat in (False, True)
            for shots in (0, 3)
        ]
        print(f"{skill.__name__:<17}" + "".join(f"{cell:>13.1%}" for cell in cells), flush=True)
    print(f"stories: {bits_per_character(engine):.3f} bits per character")


if __name__ == "__main__":
    main()
