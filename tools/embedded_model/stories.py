"""Tiny stories from a template grammar: predictable enough to learn, varied enough to measure."""

from __future__ import annotations

from random import Random

HEROES = [
    ("girl", "she", "her", ["Lily", "Mia", "Anna", "Zoe", "Eva"]),
    ("boy", "he", "his", ["Tom", "Ben", "Sam", "Max", "Leo"]),
]
TRAITS = ["little", "kind", "brave", "happy", "quiet", "clever"]
TOYS = ["ball", "kite", "doll", "boat", "drum", "car", "hat", "book"]
COLOURS = ["red", "blue", "green", "yellow", "purple", "orange"]
PLACES = [
    ("park", "under a tree"),
    ("garden", "behind a bush"),
    ("beach", "in the sand"),
    ("forest", "near a pond"),
]
FRIENDS = ["dog", "cat", "bird", "rabbit", "frog", "duck"]
WEATHER = ["sunny", "windy", "rainy", "cold", "warm"]
ENDS = [
    "{N} was very happy.",
    "They played until the sun went down.",
    "{N} went home with a smile.",
    "From that day on, they were best friends.",
]


def write_story(random: Random) -> str:
    """Five to eight short sentences about one child, one toy, one place and one animal."""
    kind, pronoun, possessive, names = random.choice(HEROES)
    name, toy, colour = random.choice(names), random.choice(TOYS), random.choice(COLOURS)
    (place, spot), friend = random.choice(PLACES), random.choice(FRIENDS)
    subject = pronoun.capitalize()
    opening = random.choice(["Once upon a time, there was", "There once was", "One day, there was"])
    sentences = [
        f"{opening} a {random.choice(TRAITS)} {kind} named {name}.",
        f"{subject} had a {colour} {toy}.",
        random.choice(
            [
                f"{name} loved {possessive} {toy} very much.",
                f"{subject} played with {possessive} {toy} every day.",
            ]
        ),
        random.choice(
            [
                f"One {random.choice(WEATHER)} day, {name} went to the {place}.",
                f"{name} took the {toy} to the {place}.",
            ]
        ),
    ]
    if random.random() < 0.6:
        sentences.append(f"But then {pronoun} lost the {toy}.")
        sentences.append(
            random.choice([f"{name} was sad and began to cry.", f"{name} looked and looked for it."])
        )
        sentences.append(f"A {friend} found the {colour} {toy} {spot}.")
        sentences.append(f'"Thank you, {friend}!" said {name}.')
    else:
        sentences.append(f"{subject} met a {friend} {spot}.")
        sentences.append(f'"Do you want to play with my {colour} {toy}?" asked {name}.')
        sentences.append(f"The {friend} said yes.")
    sentences.append(random.choice(ENDS).format(N=name))
    return " ".join(sentences)
