"""A first task file from a look at the data: which column asks, which one answers, what there is to choose from.

Guesses, for a person to look over. Each one is made from names people give their columns and from what is in them, and
can be said instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

from assay.core.errors import DatasetError, InvalidOption
from assay.core.output_types import OutputType

__all__ = ["ColumnRoles", "TaskDraft", "draft_task", "guess_columns", "to_template_name"]

_QUESTIONS = "question query prompt problem instruction input ctx sentence goal premise text".split()
_ANSWERS = "answer label target gold answerkey answer_key correct correct_answer solution output response completion".split()
_CHOICES = "choices options endings candidates alternatives".split()
_IMAGES = "image images picture img photo".split()
_LETTERS = "ABCDEFGHIJ"
_SHORT = 60
"""Letters of an answer that is likely to be written exactly as it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRoles:
    """What the columns of a dataset mean."""

    question: str
    answer: str = ""
    choices: tuple[str, ...] = ()
    """One column with a list, or one column for each choice."""

    image: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDraft:
    """What goes into a task file."""

    output_type: OutputType
    doc_to_text: str
    doc_to_target: str
    doc_to_choice: str = ""
    doc_to_image: str = ""
    exact: bool = True
    """Whether an answer can be expected to be written as the target is."""

    numbers: bool = False
    """Whether all targets are numbers."""


def guess_columns(rows: Sequence[Mapping[str, Any]], given: Mapping[str, str]) -> ColumnRoles:
    """Which column is which.

    Args:
        rows: The first documents.
        said: What somebody knows: `question`, `answer`, `choices` (several with commas), `image`.

    Raises:
        DatasetError: There are no documents.
        InvalidOption: A column that is not there, or no column to ask with.
    """
    if not rows:
        raise DatasetError("the dataset has no documents", hint="another --split?")
    names = list(rows[0])
    for role, value in given.items():
        for name in value.split(","):
            if name and name not in names:
                raise InvalidOption(
                    f"there is no column `{name}`", where=f"--{role}", hint=f"there are {', '.join(names)}"
                )
    image = given.get("image") or _found(names, _IMAGES, lambda name: _is_picture(rows[0][name]))
    choices = tuple(given["choices"].split(",")) if given.get("choices") else _choices(names, rows)
    taken = {image, *choices}
    question = given.get("question") or _found(names, _QUESTIONS, lambda name: _is_text(rows, name), taken)
    if not question:
        texts = [name for name in names if name not in taken and _is_text(rows, name)]
        question = texts[0] if texts else ""
    if not question:
        raise InvalidOption(
            "no column looks like a question",
            where="--question",
            hint=f"name it; there are {', '.join(names)}",
        )
    answer = given.get("answer") or _found(names, _ANSWERS, lambda name: True, taken | {question})
    return ColumnRoles(question=question, answer=answer, choices=choices if answer else (), image=image)


def _found(names: Sequence[str], known: Sequence[str], fits: Any, taken: set[str] | None = None) -> str:
    """The first of the names people use; then one that ends like them (`final_answer`)."""
    free = {_plain(name): name for name in names if name not in (taken or set())}
    for word in known:
        if word in free and fits(free[word]):
            return free[word]
    for word in known:
        for plain, name in free.items():
            if re.search(rf"(^|_){word}$", plain) and fits(name):
                return name
    return ""


def _plain(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _is_text(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    return all(isinstance(row.get(name), str) for row in rows)


def _is_picture(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "bytes" in value or "path" in value
    if isinstance(value, str):
        return bool(re.search(r"\.(png|jpe?g|webp|gif|bmp)$", value, re.I))
    return hasattr(value, "convert") or (isinstance(value, list) and bool(value) and _is_picture(value[0]))


def _choices(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """A column with lists (or with texts and labels), or columns called A, B, C or option_a, option_b."""
    one = _found(names, _CHOICES, lambda name: all(len(_texts(row[name])) > 1 for row in rows))
    if one:
        return (one,)
    for pattern in (r"{}", r"option_?{}", r"choice_?{}", r"(?:ending|answer|sol|option|choice)_?{}"):
        for letters in ("abcdefghij", "0123456789", "123456789"):
            by_name = {_plain(name): name for name in names}
            found: list[str] = []
            for letter in letters:
                match = [
                    name for plain, name in by_name.items() if re.fullmatch(pattern.format(letter), plain)
                ]
                if not match:
                    break
                found.append(match[0])
            if len(found) > 1:
                return tuple(found)
    return ()


def _texts(value: Any) -> list[Any]:
    """The choices in a cell: a list, or the `text` of a mapping of lists."""
    if isinstance(value, Mapping) and isinstance(value.get("text"), Sequence):
        value = value["text"]
    return list(value) if isinstance(value, (list, tuple)) else []


def to_template_name(column: str) -> str:
    """What a column is called in a template: its name, made one that templates can say.

    >>> template_name("answer"), template_name("Option A"), template_name("2nd")
    ('answer', 'Option_A', 'column_2nd')
    """
    name = re.sub(r"\W", "_", column)
    return f"column_{name}" if not name or name[0].isdigit() or iskeyword(name) else name


def draft_task(rows: Sequence[Mapping[str, Any]], columns: ColumnRoles) -> TaskDraft:
    """How to ask, given what the columns are.

    Raises:
        InvalidOption: The answers are not among the choices.
    """
    image, question = columns.image and to_template_name(columns.image), to_template_name(columns.question)
    if not columns.answer:
        return TaskDraft(
            output_type=OutputType.LOGLIKELIHOOD_ROLLING, doc_to_text="", doc_to_target=f"{{{{{question}}}}}"
        )
    if columns.choices:
        choice, choices = _choice_template(rows, columns)
        return TaskDraft(
            output_type=OutputType.MULTIPLE_CHOICE,
            doc_to_text=f"{{{{{question}}}}}\nAnswer:",
            doc_to_target=_target(rows, columns, choice, choices),
            doc_to_choice=choice,
            doc_to_image=image,
        )
    targets = [str(row[columns.answer]).strip() for row in rows]
    return TaskDraft(
        output_type=OutputType.GENERATE_UNTIL,
        doc_to_text=f"{{{{{question}}}}}\nAnswer:",
        doc_to_target=f"{{{{{to_template_name(columns.answer)}}}}}",
        doc_to_image=image,
        exact=all(len(target) <= _SHORT and "\n" not in target for target in targets),
        numbers=all(re.fullmatch(r"-?[\d,]+(\.\d+)?", target) for target in targets),
    )


def _choice_template(rows: Sequence[Mapping[str, Any]], columns: ColumnRoles) -> tuple[str, list[list[Any]]]:
    """The template of the choices, and what it gives for each row."""
    if len(columns.choices) > 1:
        made = "{{[" + ", ".join(map(to_template_name, columns.choices)) + "]}}"
        return made, [[row[name] for name in columns.choices] for row in rows]
    name = columns.choices[0]
    inner = f"{to_template_name(name)}.text" if isinstance(rows[0][name], Mapping) else to_template_name(name)
    return f"{{{{{inner}}}}}", [_texts(row[name]) for row in rows]


def _target(
    rows: Sequence[Mapping[str, Any]], columns: ColumnRoles, choice: str, choices: Sequence[Sequence[Any]]
) -> str:
    """How the answer's column says which choice is right: by number, letter, label or text."""
    name, inner = to_template_name(columns.answer), choice.strip("{}")
    answers = [row[columns.answer] for row in rows]
    pairs = list(zip(answers, choices, strict=True))
    if all(answer in held for answer, held in pairs):
        return f"{{{{{inner}.index({name})}}}}"
    if all(isinstance(answer, int) and not isinstance(answer, bool) for answer in answers):
        if all(0 <= answer < len(held) for answer, held in pairs):
            return f"{{{{{name}}}}}"
        if all(1 <= answer <= len(held) for answer, held in pairs):
            return f"{{{{{name} - 1}}}}"
    texts = [str(answer).strip() for answer in answers]
    first = rows[0][columns.choices[0]]
    if isinstance(first, Mapping) and "label" in first:
        labels = [row[columns.choices[0]]["label"] for row in rows]
        if all(text in held for text, held in zip(texts, labels, strict=True)):
            return f"{{{{{to_template_name(columns.choices[0])}.label.index({name})}}}}"
    if all(
        len(text) == 1 and text.upper() in _LETTERS[: len(held)]
        for text, held in zip(texts, choices, strict=True)
    ):
        return f'{{{{"{_LETTERS}".index({name}.strip().upper())}}}}'
    if all(text.isdecimal() and int(text) < len(held) for text, held in zip(texts, choices, strict=True)):
        return f"{{{{{name} | int}}}}"
    if all(
        text.isdecimal() and 1 <= int(text) <= len(held) for text, held in zip(texts, choices, strict=True)
    ):
        return f"{{{{({name} | int) - 1}}}}"
    raise InvalidOption(
        f"`{name}` does not say which of the choices is right: the first is {answers[0]!r}",
        where="--answer",
        hint="name another column, or --type generate_until",
    )
