"""Questions about pictures: colour, shape, count, yes or no, a short description."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from examples import Example
from pictures import COLOURS, SHAPES, Scene, draw_scene, random_scene


def about_one_shape(random: Random) -> Example:
    """Colour, shape or description of a single shape."""
    return _about_one(random, random_scene(random, most=1))


def count_shapes(random: Random) -> Example:
    """How many shapes there are, one to five."""
    return _count(random, random_scene(random))


def is_there(random: Random) -> Example:
    """Yes or no, half each."""
    return _is_there(random, random_scene(random, most=3))


def colour_among(random: Random) -> Example:
    """The colour of one shape among two or three different ones."""
    return _colour_of(random, _different_shapes(random))


def several_questions(random: Random) -> list[Example]:
    """Three or four questions about one picture, which is shown once."""
    if random.random() < 0.4:
        scene = random_scene(random, most=1)
        kinds = [_about_one, _about_one, _is_there, _count]
    else:
        scene = _different_shapes(random)
        kinds = [_colour_of, _colour_of, _is_there, _count]
    random.shuffle(kinds)
    examples = [kind(random, scene) for kind in kinds[: random.randint(3, 4)]]
    return [examples[0], *(replace(example, pictures=()) for example in examples[1:])]


def drill(random: Random) -> list[Example]:
    """Two pictures with one shape each, and its colour and shape in two words."""
    examples = []
    for _ in range(2):
        scene = random_scene(random, most=1)
        (shape, colour) = scene.things[0]
        examples.append(Example(question="Color:", answer=colour, pictures=(scene.picture,), raw=True))
        examples.append(Example(question="Shape:", answer=shape, raw=True))
    return examples


def _different_shapes(random: Random) -> Scene:
    shapes = random.sample(SHAPES, random.randint(2, 3))
    return draw_scene(random, [(shape, random.choice(list(COLOURS))) for shape in shapes])


def _about_one(random: Random, scene: Scene) -> Example:
    (shape, colour) = scene.things[0]
    spelling = random.choice(["colour", "color"])
    kind = random.randrange(5)
    if kind < 2:
        phrase = random.choice(["What {c} is the shape?", "What {c} is the {s}?", "Which {c} is it?"])
        return _ask(scene, phrase.format(c=spelling, s=shape), colour)
    if kind < 4:
        phrase = random.choice(["What shape is this?", "What shape is in the picture?", "Which shape is it?"])
        return _ask(scene, phrase, shape)
    article = "an" if colour == "orange" else "a"
    phrase = random.choice(["Describe the picture.", "What is in the picture?"])
    return _ask(scene, phrase, f"{article} {colour} {shape}")


def _count(random: Random, scene: Scene) -> Example:
    phrase = random.choice(
        ["How many shapes are there?", "How many shapes are in the picture?", "Count the shapes."]
    )
    return _ask(scene, phrase, str(len(scene.things)))


def _is_there(random: Random, scene: Scene) -> Example:
    wanted = random.choice(scene.things)
    if random.random() < 0.5:
        while wanted in scene.things:
            wanted = random.choice(SHAPES), random.choice(list(COLOURS))
    shape, colour = wanted
    article = "an" if colour == "orange" else "a"
    phrase = random.choice(["Is there {a} {c} {s}?", "Is there {a} {c} {s} in the picture?"])
    present = "yes" if wanted in scene.things else "no"
    return _ask(scene, phrase.format(a=article, c=colour, s=shape), present)


def _colour_of(random: Random, scene: Scene) -> Example:
    shape, colour = random.choice(scene.things)
    spelling = random.choice(["colour", "color"])
    return _ask(scene, f"What {spelling} is the {shape}?", colour)


def colour_letter(random: Random) -> Example:
    """The colour of a single shape as a letter of four choices."""
    scene = random_scene(random, most=1)
    choices = random.sample(list(COLOURS), 4)
    colour = scene.things[0][1]
    if colour not in choices:
        choices[random.randrange(4)] = colour
    lines = "\n".join(f"{letter}. {choice}" for letter, choice in zip("ABCD", choices, strict=True))
    return _ask(scene, f"What color is the shape?\n{lines}", "ABCD"[choices.index(colour)])


def _ask(scene: Scene, question: str, answer: str) -> Example:
    return Example(question=question, answer=answer, pictures=(scene.picture,))
