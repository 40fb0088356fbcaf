"""Questions about images: color, shape, count, presence, a short description."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from examples import Example
from shape_images import COLOURS, SHAPES, Scene, draw_random_scene, draw_scene


def about_one_shape(random: Random) -> Example:
    """Colour, shape or description of a single shape."""
    return _ask_about_shape(random, draw_random_scene(random, max_things=1))


def count_shapes(random: Random) -> Example:
    """How many shapes there are, one to five."""
    return _ask_count(random, draw_random_scene(random))


def is_there(random: Random) -> Example:
    """Yes or no, half each."""
    return _ask_presence(random, draw_random_scene(random, max_things=3))


def colour_among(random: Random) -> Example:
    """The colour of one shape among two or three different ones."""
    return _ask_colour(random, _draw_different_shapes(random))


def several_questions(random: Random) -> list[Example]:
    """Three or four questions about one picture, which is shown once."""
    if random.random() < 0.4:
        scene = draw_random_scene(random, max_things=1)
        kinds = [_ask_about_shape, _ask_about_shape, _ask_presence, _ask_count]
    else:
        scene = _draw_different_shapes(random)
        kinds = [_ask_colour, _ask_colour, _ask_presence, _ask_count]
    random.shuffle(kinds)
    examples = [kind(random, scene) for kind in kinds[: random.randint(3, 4)]]
    return [examples[0], *(replace(example, pictures=()) for example in examples[1:])]


def drill(random: Random) -> list[Example]:
    """Two pictures with one shape each, and its colour and shape in two words."""
    examples = []
    for _ in range(2):
        scene = draw_random_scene(random, max_things=1)
        (shape, colour) = scene.things[0]
        examples.append(Example(question="Color:", answer=colour, pictures=(scene.picture,), raw=True))
        examples.append(Example(question="Shape:", answer=shape, raw=True))
    return examples


def quiz(random: Random) -> list[Example]:
    """One picture and five short questions about it, max_things of them yes or no: a colour, a shape, or both."""
    scene = draw_random_scene(random, max_things=random.choice([1, 3]))
    examples = []
    for number in range(5):
        make = random.choice(
            [_ask_part_presence, _ask_part_presence, _ask_presence, _ask_presence, _ask_count]
        )
        pictures = (scene.picture,) if number == 0 else ()
        examples.append(replace(make(random, scene), pictures=pictures, raw=True))
    return examples


def _ask_part_presence(random: Random, scene: Scene) -> Example:
    """Ask for a color or a shape alone: half of the answer to "a red circle"."""
    place = random.randrange(2)
    words = (SHAPES, list(COLOURS))[place]
    present = {thing[place] for thing in scene.things}
    absent = [word for word in words if word not in present]
    is_right = random.random() < 0.5 or not absent
    word = random.choice(sorted(present) if is_right else absent)
    article = "an" if word == "orange" else "a"
    return _ask(scene, f"Is there {article} {word}{' shape' if place else ''}?", "yes" if is_right else "no")


def list_things(random: Random) -> list[Example]:
    """One image: the number of shapes, the color of one, and finally the whole list, row by row."""
    shapes = random.sample(SHAPES, 4)[: random.randint(1, 4)]
    scene = draw_scene(random, [(shape, random.choice(list(COLOURS))) for shape in shapes])
    order = sorted(range(len(shapes)), key=lambda place: (scene.boxes[place][1] // 10, scene.boxes[place][0]))
    listed = ", ".join(" ".join(reversed(scene.things[place])) for place in order)
    examples = [_ask_count(random, scene), _ask_colour(random, scene), _ask_colour(random, scene)]
    random.shuffle(examples)
    rest = [replace(example, pictures=()) for example in examples[1:]]
    return [examples[0], *rest, Example(question="List the shapes.", answer=listed)]


def few_letters(random: Random) -> list[Example]:
    """The color and the shape of a single thing as a letter of two to four choices, about one image."""
    scene = draw_random_scene(random, max_things=1)
    examples = []
    for place, words in enumerate((SHAPES, list(COLOURS))):
        answer = scene.things[0][place]
        others = random.sample([word for word in words if word != answer], random.randint(1, 3))
        choices = random.sample([answer, *others], len(others) + 1)
        lines = "".join(f"\n{letter}. {choice}" for letter, choice in zip("ABCD", choices, strict=False))
        question = f"What {('shape', 'color')[place]} is it?{lines}"
        examples.append(_ask(scene, question, "ABCD"[choices.index(answer)]))
    random.shuffle(examples)
    return [examples[0], replace(examples[1], pictures=())]


def _draw_different_shapes(random: Random) -> Scene:
    shapes = random.sample(SHAPES, random.randint(2, 3))
    return draw_scene(random, [(shape, random.choice(list(COLOURS))) for shape in shapes])


def _ask_about_shape(random: Random, scene: Scene) -> Example:
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


def _ask_count(random: Random, scene: Scene) -> Example:
    phrase = random.choice(
        ["How many shapes are there?", "How many shapes are in the picture?", "Count the shapes."]
    )
    return _ask(scene, phrase, str(len(scene.things)))


def _ask_presence(random: Random, scene: Scene) -> Example:
    wanted = random.choice(scene.things)
    if random.random() < 0.5:
        while wanted in scene.things:
            wanted = random.choice(SHAPES), random.choice(list(COLOURS))
    shape, colour = wanted
    article = "an" if colour == "orange" else "a"
    phrase = random.choice(["Is there {a} {c} {s}?", "Is there {a} {c} {s} in the picture?"])
    present = "yes" if wanted in scene.things else "no"
    return _ask(scene, phrase.format(a=article, c=colour, s=shape), present)


def _ask_colour(random: Random, scene: Scene) -> Example:
    shape, colour = random.choice(scene.things)
    spelling = random.choice(["colour", "color"])
    return _ask(scene, f"What {spelling} is the {shape}?", colour)


def colour_letter(random: Random) -> Example:
    """The colour of a single shape as a letter of four choices."""
    scene = draw_random_scene(random, max_things=1)
    choices = random.sample(list(COLOURS), 4)
    colour = scene.things[0][1]
    if colour not in choices:
        choices[random.randrange(4)] = colour
    lines = "\n".join(f"{letter}. {choice}" for letter, choice in zip("ABCD", choices, strict=True))
    return _ask(scene, f"What color is the shape?\n{lines}", "ABCD"[choices.index(colour)])


def _ask(scene: Scene, question: str, answer: str) -> Example:
    return Example(question=question, answer=answer, pictures=(scene.picture,))
