"""Addition: bare sums, questions, and word problems with a worked answer."""

from __future__ import annotations

from random import Random

from examples import Example, is_held_out

NAMES = ["Tom", "Lily", "Ben", "Mia", "Sam", "Anna", "Max", "Zoe", "Leo", "Eva"]
THINGS = ["apples", "books", "coins", "shells", "cards", "stones", "pens", "stamps", "eggs", "nuts"]


def draw_pair(random: Random, *, held_out: bool = False) -> tuple[int, int]:
    """Draw two numbers to add, from the held-out pairs only for tasks and measurements."""
    while True:
        lowest = 10 if held_out or random.random() < 0.9 else 0
        pair = random.randint(lowest, 99), random.randint(lowest, 99)
        if is_held_out(*pair) == held_out:
            return pair


def short_sum(random: Random, *, held_out: bool = False) -> Example:
    """ "What is 23 + 45?" -> "68", in several phrasings."""
    first, second = draw_pair(random, held_out=held_out)
    total = str(first + second)
    if random.random() < 0.45:
        return Example(question=f"{first} + {second} =", answer=total, raw=True)
    phrase = random.choice(
        [
            "What is {a} + {b}?",
            "What is {a} + {b}?",
            "{a} + {b}",
            "{a} + {b} = ?",
            "What is {a} plus {b}?",
            "Add {a} and {b}.",
            "What is the sum of {a} and {b}?",
        ]
    )
    return Example(question=phrase.format(a=first, b=second), answer=total)


def format_word_problem(name: str, thing: str, first: int, second: int) -> str:
    """The question of a word problem, as the quickstart tasks ask it too."""
    return f"{name} has {first} {thing} and gets {second} more. How many {thing} now?"


def word_problem(random: Random, *, held_out: bool = False) -> Example:
    """A word problem with a worked answer, from which a filter can extract the result."""
    first, second = draw_pair(random, held_out=held_out)
    name, thing = random.choice(NAMES), random.choice(THINGS)
    question = format_word_problem(name, thing, first, second)
    return Example(question=question, answer=f"{first} + {second} = {first + second}")


def drill(random: Random) -> list[Example]:
    """Eight bare sums."""
    pairs = [draw_pair(random) for _ in range(8)]
    return [
        Example(question=f"{first} + {second} =", answer=str(first + second), raw=True)
        for first, second in pairs
    ]
