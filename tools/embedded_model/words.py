"""Copying and reversing short words."""

from __future__ import annotations

from random import Random
from string import ascii_lowercase

from examples import Example

WORDS = (
    "apple river stone house garden window mountain yellow summer winter friend orange paper silver "
    "forest planet rabbit candle bridge market pencil bottle letter number butter kitten monkey basket"
).split()


def draw_word(random: Random, max_length: int = 8) -> str:
    """Mostly random letters, sometimes an English word."""
    if random.random() < 0.2:
        return random.choice(WORDS)
    return "".join(random.choices(ascii_lowercase, k=random.randint(2, max_length)))


def copy_word(random: Random) -> Example:
    """ "Copy: kqxv" -> "kqxv"."""
    word = draw_word(random)
    if random.random() < 0.4:
        return Example(question=f"Copy: {word}\nOutput:", answer=word, raw=True)
    phrase = random.choice(
        ["Copy the word {w}.", "Copy: {w}", "Repeat: {w}", "Write the word {w}.", "Say {w}."]
    )
    return Example(question=phrase.format(w=word), answer=word)


def reverse_word(random: Random) -> Example:
    """ "Reverse: abc" -> "cba"."""
    word = draw_word(random, max_length=6)
    if random.random() < 0.3:
        return Example(question=f"Reverse: {word}\nOutput:", answer=word[::-1], raw=True)
    phrase = random.choice(["Reverse: {w}", "Reverse the word {w}.", "Spell {w} backwards."])
    return Example(question=phrase.format(w=word), answer=word[::-1])


def drill(random: Random) -> list[Example]:
    """Several words to copy."""
    words = [draw_word(random) for _ in range(5)]
    return [Example(question=f"Copy: {word}\nOutput:", answer=word, raw=True) for word in words]


def longer_drill(random: Random) -> list[Example]:
    """Longer words to copy, five to nine letters."""
    words = ["".join(random.choices(ascii_lowercase, k=random.randint(5, 9))) for _ in range(4)]
    return [Example(question=f"Copy: {word}\nOutput:", answer=word, raw=True) for word in words]
