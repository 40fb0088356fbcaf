"""Draft a task file from a dataset: guess which columns contain the question, the answer and the choices.

The guesses use common column names and the values in the columns. The user reviews the draft and can set every column.
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

_QUESTION_NAMES = "question query prompt problem instruction input ctx sentence goal premise text".split()
_ANSWER_NAMES = "answer label target gold answerkey answer_key correct correct_answer solution output response completion".split()
_CHOICE_NAMES = "choices options endings candidates alternatives".split()
_IMAGE_NAMES = "image images picture img photo".split()
_FLAGS = {"question": "text", "answer": "target"}
"""Flags of `assay new task` whose names differ from the role of their column."""

_LETTERS = "ABCDEFGHIJ"
_MAX_EXACT_LENGTH = 60
"""Answers up to this length are likely to be matched exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRoles:
    """The roles of the columns of a dataset."""

    question: str
    answer: str = ""
    choices: tuple[str, ...] = ()
    """One column with a list, or one column per choice."""

    image: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDraft:
    """The content of a task file."""

    output_type: OutputType
    doc_to_text: str
    doc_to_target: str
    doc_to_choice: str = ""
    doc_to_image: str = ""
    exact: bool = True
    """Whether an exact match with the target is likely."""

    numbers: bool = False
    """Whether all targets are numbers."""


def guess_columns(rows: Sequence[Mapping[str, Any]], given: Mapping[str, str]) -> ColumnRoles:
    """Guess the roles of the columns.

    Args:
        rows: The first documents.
        given: Columns set by the user: `question`, `answer`, `choices` (separated by commas), `image`. An empty text means
            that there is no such column; a role that is missing here is guessed.

    Raises:
        DatasetError: There are no documents.
        InvalidOption: A column does not exist, or no column looks like a question.
    """
    if not rows:
        raise DatasetError("the dataset has no documents", hint="try another --split")
    names = list(rows[0])
    for role, value in given.items():
        for name in value.split(","):
            if name and name not in names:
                raise InvalidOption(
                    f"no column `{name}`",
                    where=f"--{_FLAGS.get(role, role)}",
                    hint=f"columns: {', '.join(names)}",
                )
    image = given.get("image")
    if image is None:
        image = _find_column(names, _IMAGE_NAMES, lambda name: _is_picture(rows[0][name]))
    choices = (
        tuple(filter(None, given["choices"].split(","))) if "choices" in given else _find_choices(names, rows)
    )
    taken = {image, *choices}
    question = given.get("question") or _find_column(
        names, _QUESTION_NAMES, lambda name: _is_text(rows, name), taken
    )
    if not question:
        texts = [name for name in names if name not in taken and _is_text(rows, name)]
        question = texts[0] if texts else ""
    if not question:
        raise InvalidOption(
            "no column looks like a question",
            where="--text",
            hint=f"set the column; columns: {', '.join(names)}",
        )
    answer = given.get("answer")
    if answer is None:
        answer = _find_column(names, _ANSWER_NAMES, lambda name: True, taken | {question})
    if not answer and "answer" not in given and not given.get("question") and _is_unknown_name(question):
        rest = [name for name in names if name not in taken | {question} and not _looks_like_id(rows, name)]
        answer = rest[0] if len(rest) == 1 else ""  # two columns, such as country and capital
    return ColumnRoles(question=question, answer=answer, choices=choices if answer else (), image=image)


def _find_column(names: Sequence[str], known: Sequence[str], fits: Any, taken: set[str] | None = None) -> str:
    """Return the first column with a known name, or one that ends with a known name (`final_answer`)."""
    free = {_snake_case(name): name for name in names if name not in (taken or set())}
    for word in known:
        if word in free and fits(free[word]):
            return free[word]
    for word in known:
        for plain, name in free.items():
            if re.search(rf"(^|_){word}$", plain) and fits(name):
                return name
    return ""


def _is_unknown_name(name: str) -> bool:
    return not any(re.search(rf"(^|_){word}$", _snake_case(name)) for word in _QUESTION_NAMES)


def _looks_like_id(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Whether a column numbers the documents or is not a short value."""
    if re.search(r"(^|_)(id|index|idx|number|split|source|url)$", _snake_case(name)):
        return True
    return not all(
        isinstance(row.get(name), (str, int, float)) and len(str(row[name])) <= _MAX_EXACT_LENGTH
        for row in rows
    )


def _build_prompt(columns: ColumnRoles, question: str) -> str:
    """Return the prompt: `Country: … Capital:` if the names of the columns say more than `question` and `answer`."""
    if _is_unknown_name(columns.question) and not _has_answer_name(columns.answer):
        first, second = (
            name.replace("_", " ").strip().capitalize() for name in (columns.question, columns.answer)
        )
        return f"{first}: {{{{{question}}}}}\n{second}:"
    return f"{{{{{question}}}}}\nAnswer:"


def _has_answer_name(name: str) -> bool:
    return any(re.search(rf"(^|_){word}$", _snake_case(name)) for word in _ANSWER_NAMES)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _is_text(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    return all(isinstance(row.get(name), str) for row in rows)


def _is_picture(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "bytes" in value or "path" in value
    if isinstance(value, str):
        return bool(re.search(r"\.(png|jpe?g|webp|gif|bmp)$", value, re.I))
    return hasattr(value, "convert") or (isinstance(value, list) and bool(value) and _is_picture(value[0]))


def _find_choices(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Find a column of lists (or of texts and labels), or columns named A, B, C or option_a, option_b."""
    one = _find_column(
        names, _CHOICE_NAMES, lambda name: all(len(_choice_texts(row[name])) > 1 for row in rows)
    )
    if one:
        return (one,)
    for pattern in (r"{}", r"option_?{}", r"choice_?{}", r"(?:ending|answer|sol|option|choice)_?{}"):
        for letters in ("abcdefghij", "0123456789", "123456789"):
            by_name = {_snake_case(name): name for name in names}
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


def _choice_texts(value: Any) -> list[Any]:
    """Return the choices in a cell: a list, or the `text` of a mapping of lists."""
    if isinstance(value, Mapping) and isinstance(value.get("text"), Sequence):
        value = value["text"]
    return list(value) if isinstance(value, (list, tuple)) else []


def to_template_name(column: str) -> str:
    """Convert a column name to a valid name in templates.

    >>> to_template_name("answer"), to_template_name("Option A"), to_template_name("2nd")
    ('answer', 'Option_A', 'column_2nd')
    """
    name = re.sub(r"\W", "_", column)
    return f"column_{name}" if not name or name[0].isdigit() or iskeyword(name) else name


def draft_task(rows: Sequence[Mapping[str, Any]], columns: ColumnRoles) -> TaskDraft:
    """Draft a task for the given columns.

    Raises:
        InvalidOption: The answers do not match the choices.
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
            doc_to_target=_target_template(rows, columns, choice, choices),
            doc_to_choice=choice,
            doc_to_image=image,
        )
    targets = [str(row[columns.answer]).strip() for row in rows]
    return TaskDraft(
        output_type=OutputType.GENERATE_UNTIL,
        doc_to_text=_build_prompt(columns, question),
        doc_to_target=f"{{{{{to_template_name(columns.answer)}}}}}",
        doc_to_image=image,
        exact=all(len(target) <= _MAX_EXACT_LENGTH and "\n" not in target for target in targets),
        numbers=all(re.fullmatch(r"-?[\d,]+(\.\d+)?", target) for target in targets),
    )


def _choice_template(rows: Sequence[Mapping[str, Any]], columns: ColumnRoles) -> tuple[str, list[list[Any]]]:
    """Return the template of the choices, and the choices of each row."""
    if len(columns.choices) > 1:
        template = "{{[" + ", ".join(map(to_template_name, columns.choices)) + "]}}"
        return template, [[row[name] for name in columns.choices] for row in rows]
    name = columns.choices[0]
    inner = f"{to_template_name(name)}.text" if isinstance(rows[0][name], Mapping) else to_template_name(name)
    return f"{{{{{inner}}}}}", [_choice_texts(row[name]) for row in rows]


def _target_template(
    rows: Sequence[Mapping[str, Any]], columns: ColumnRoles, choice: str, choices: Sequence[Sequence[Any]]
) -> str:
    """Return the template of the target. The answer column has the number, letter, label or text of a choice."""
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
        f"`{name}` does not identify one of the choices: its first value is {answers[0]!r}",
        where="--target",
        hint="set another column, or use --type generate_until",
    )
