"""Build training rows from skills: frames, few-shot examples, chat turns, and loss weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from PIL.Image import Image

import arithmetic
import facts
import image_questions
import stories
import words
from examples import Example, Skill
from tokenizer_files import ASSISTANT, BOS, EOS, IMAGE, SYSTEM, USER, encode

PATCHES = 16
STORY_WEIGHT = 0.15
MIXTURE: list[tuple[tuple[float, ...], Skill]] = [
    # shares in the stages of training, see PHASES
    ((0.25, 0.24, 0.25, 0.16, 0.15, 0.24, 0.28, 0.18), arithmetic.short_sum),
    ((0.08, 0.15, 0.05, 0.04, 0.04, 0.07, 0.05, 0.25), arithmetic.word_problem),
    ((0.11, 0.07, 0.04, 0.04, 0.05, 0.05, 0.05, 0.05), words.copy_word),
    ((0.03, 0.02, 0.02, 0.03, 0.04, 0.03, 0.04, 0.03), words.reverse_word),
    ((0.11, 0.12, 0.20, 0.16, 0.22, 0.19, 0.13, 0.10), image_questions.about_one_shape),
    ((0.06, 0.13, 0.08, 0.13, 0.14, 0.17, 0.13, 0.09), image_questions.count_shapes),
    ((0.04, 0.06, 0.13, 0.13, 0.12, 0.10, 0.13, 0.08), image_questions.is_there),
    ((0.04, 0.06, 0.10, 0.08, 0.18, 0.08, 0.14, 0.12), image_questions.colour_among),
    ((0.01, 0.01, 0.01, 0.06, 0.00, 0.01, 0.01, 0.01), image_questions.colour_letter),
    ((0.08, 0.07, 0.06, 0.06, 0.06, 0.08, 0.07, 0.05), facts.free_fact),
    ((0.05, 0.05, 0.04, 0.08, 0.00, 0.01, 0.02, 0.02), facts.letter_fact),
    ((0.02, 0.02, 0.02, 0.06, 0.00, 0.02, 0.04, 0.02), facts.yes_no_fact),
]
WITHOUT_DRILLS, WITH_DRILLS = (0.03, 0.09), (0.015, 0.06)
"""Shares of stories and of several questions about one image among the rows that are not drills."""

DRILLS: list[tuple[tuple[float, ...], Callable[[Random], list[Example]]]] = [
    # shares in the stages of training, see PHASES
    ((0.55, 0.12, 0.08, 0.14, 0.22, 0.20), arithmetic.drill),
    ((0.30, 0.08, 0.05, 0.08, 0.08, 0.06), image_questions.drill),
    ((0.15, 0.05, 0.06, 0.06, 0.08, 0.00), words.drill),
    ((0.00, 0.00, 0.00, 0.00, 0.00, 0.35), words.longer_drill),
    ((0.00, 0.25, 0.32, 0.40, 0.40, 0.27), image_questions.quiz),
    ((0.00, 0.00, 0.25, 0.17, 0.12, 0.05), image_questions.list_things),
    ((0.00, 0.12, 0.00, 0.00, 0.00, 0.00), image_questions.few_letters),
    ((0.00, 0.15, 0.20, 0.10, 0.00, 0.00), facts.find_letters),
    ((0.00, 0.12, 0.00, 0.00, 0.00, 0.00), facts.few_letters),
    ((0.00, 0.11, 0.04, 0.05, 0.10, 0.07), facts.yes_no_drill),
]
ROW_LENGTHS = ([60, 100, 160, 320, 640], [35, 30, 20, 12, 3])
FRAMES = (
    [("Question: {q}\nAnswer:", " ")] * 4 + [("Q: {q}\nA:", " ")] * 2 + [("{q}\nAnswer:", " "), ("{q}", "\n")]
)
DESCRIPTIONS = [
    "Answer the question.",
    "Answer the questions.",
    "Look at the picture.",
    "You are a helpful model.",
]


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of training: its first batch, the share of drills, and which columns of MIXTURE and DRILLS apply."""

    start: int
    drill_share: float
    shares: int = 0
    drills: int = 0
    chat_share: float = 0.4


PHASES = [
    Phase(0, 0.0),
    Phase(750, 0.5),
    Phase(2500, 0.1, shares=1),
    Phase(3900, 0.2, shares=2),
    Phase(4500, 0.4, shares=3, drills=1, chat_share=0.5),
    Phase(5000, 0.5, shares=4, drills=2, chat_share=0.4),
    Phase(5500, 0.4, shares=5, drills=3, chat_share=0.5),
    Phase(6250, 0.35, shares=6, drills=4, chat_share=0.5),
    Phase(7400, 0.4, shares=6, drills=5, chat_share=0.5),
    Phase(7650, 0.2, shares=7, drills=5, chat_share=0.5),
]


@dataclass(slots=True)
class Row:
    """Token ids, one loss weight per token (for predicting that token), and the images in order."""

    ids: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    pictures: list[Image] = field(default_factory=list)

    def add(self, ids: list[int], weight: float = 0.0) -> None:
        """Append tokens with one loss weight."""
        self.ids.extend(ids)
        self.weights.extend([weight] * len(ids))


def make_row(random: Random, phase: Phase) -> Row:
    """Make a training row: a drill (many short exercises), a story, or questions as users ask them.

    Most rows are short, so that a step contains many different questions.
    """
    if phase.drill_share and random.random() < phase.drill_share:
        weights = [shares[phase.drills] for shares, _ in DRILLS]
        drill = random.choices([each for _, each in DRILLS], weights)[0]
        if phase.drills:
            return _make_question_row(random, drill(random), phase)
        return make_plain_row(random, drill(random))
    max_length = random.choices(*ROW_LENGTHS)[0]
    story_share, several_share = WITH_DRILLS if phase.drill_share else WITHOUT_DRILLS
    kind = random.random()
    if kind < story_share:
        return make_story_row(random, 640)
    if kind < story_share + several_share:
        return _make_question_row(random, image_questions.several_questions(random), phase)
    return _make_question_row(random, _fill_examples(random, max_length, phase), phase)


def _fill_examples(random: Random, max_length: int, phase: Phase) -> list[Example]:
    """Return examples of one skill: at least one, otherwise as many as fit into the length."""
    weights = [shares[phase.shares] for shares, _ in MIXTURE]
    skill = random.choices([skill for _, skill in MIXTURE], weights)[0]
    examples: list[Example] = []
    length = 0
    while not examples or (length < max_length and len(examples) < 6):
        examples.append(skill(random))
        last = examples[-1]
        length += len(last.question) + len(last.answer) + 18 + PATCHES * len(last.pictures)
    return examples[:-1] if length > max_length and len(examples) > 1 else examples


def _make_question_row(random: Random, examples: list[Example], phase: Phase) -> Row:
    return (make_chat_row if random.random() < phase.chat_share else make_plain_row)(random, examples)


def make_plain_row(random: Random, examples: list[Example]) -> Row:
    """Make few-shot text: framed questions and answers, separated by blank lines."""
    row = Row()
    row.add([BOS])
    if random.random() < 0.1:
        row.add(encode(random.choice(DESCRIPTIONS) + "\n\n"))
    frame, delimiter = random.choice(FRAMES)
    for number, example in enumerate(examples):
        if number:
            row.add(encode("\n"))
        _add_pictures(random, row, example)
        row.add(encode(example.question if example.raw else frame.format(q=example.question)))
        row.add(encode(delimiter + example.answer + "\n"), 1.0)
    row.add([EOS], 1.0)
    return row


def make_chat_row(random: Random, examples: list[Example]) -> Row:
    """Make chat turns, or one user turn with all few-shot examples."""
    row = Row()
    row.add([BOS])
    if random.random() < 0.1:
        row.add([SYSTEM, *encode(random.choice(DESCRIPTIONS)), EOS])
    framed = random.random() < 0.5
    frame, delimiter = random.choice(FRAMES) if framed else ("{q}", "\n")
    one_turn = framed and random.random() < 0.3
    for number, example in enumerate(examples):
        text = example.question if example.raw else frame.format(q=example.question)
        if one_turn and number:
            row.add(encode("\n\n"))
        else:
            row.add([USER])
        _add_pictures(random, row, example)
        row.add(encode(text))
        if one_turn and number < len(examples) - 1:
            row.add(encode(delimiter + example.answer))
        else:
            row.add([EOS, ASSISTANT])
            row.add([*encode(example.answer), EOS], 1.0)
    return row


def make_story_row(random: Random, max_length: int) -> Row:
    """Make a row of one or more stories, with loss on every token."""
    row = Row()
    row.add([BOS])
    for number in range(random.choice([1, 1, 2, 3])):
        tokens = encode(("\n\n" if number else "") + stories.write_story(random))
        if len(row.ids) + len(tokens) < max_length:
            row.add(tokens, STORY_WEIGHT)
    row.add([EOS], STORY_WEIGHT)
    return row


def _add_pictures(random: Random, row: Row, example: Example) -> None:
    for picture in example.pictures:
        row.add([IMAGE] * PATCHES)
        row.add(encode(random.choice(["\n", "\n", "\n", "", " "])))
        row.pictures.append(picture)
