"""Permute the choices of a document and change their letters, so that the target stays right.

The choices of most tasks are a list in a column of the document, or one column each. The prompt lists them, either as they are or behind letters:

    {{question}}
    A. {{choices[0]}}
    B. {{choices[1]}}
    Answer:

`doc_to_text` and its like are opaque functions here. Rendering a document with markers in place of the entries of a list
shows whether the prompt shows this list and where. A prompt that contains the choices in another way cannot be permuted; then
the task must name the column (`choice_column`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from string import ascii_uppercase
from typing import Any

from assay.core.errors import TaskError
from assay.core.fingerprints import digest_json
from assay.core.records.variants import VariantSpec
from assay.tasks.prompts.field_compilers import copy_fields
from assay.tasks.variants.draws import LETTER_SETS

__all__ = ["ChoiceFields", "ChoiceLayout", "find_layout", "permute"]

Fields = Mapping[str, Any]
FieldFunction = Callable[[Fields], Any]

_OPEN, _CLOSE = "\ue000", "\ue001"
"""Private characters around the number of a marker. Templates do not change them."""

_AROUND = " \t().:[]"
"""Characters around a letter that belong to its format."""

_BETWEEN = re.compile(r"[\s.):\]\-]*\Z")


@dataclass(frozen=True, slots=True)
class ChoiceColumn:
    """Where a document has the texts of its choices: a list (`options`, `choices.text`), or one column per choice."""

    names: tuple[str, ...]
    """The column and the key within it, or the columns of the choices in order."""

    is_list: bool = True

    @property
    def name(self) -> str:
        return ".".join(self.names) if self.is_list else ", ".join(self.names)

    def read(self, fields: Fields) -> list[Any] | None:
        """Return the texts; None if the document does not have them."""
        value: Any = fields
        if not self.is_list:
            value = [fields.get(name) for name in self.names]
        for key in self.names if self.is_list else ():
            value = value.get(key) if isinstance(value, Mapping) else None
        return list(value) if _is_text_list(value) else None

    def write(self, fields: Fields, texts: Sequence[Any]) -> dict[str, Any]:
        """Return a copy of a document with other texts."""
        copied = copy_fields(fields)
        if not self.is_list:
            return {**copied, **dict(zip(self.names, texts, strict=True))}
        target: dict[str, Any] = copied
        for key in self.names[:-1]:
            target[key] = dict(target[key])
            target = target[key]
        target[self.names[-1]] = list(texts)
        return copied


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceLayout:
    """How the prompt of a task shows its choices."""

    column: ChoiceColumn | None
    """The texts of the choices; None: the prompt does not show them."""

    labelled: bool
    """Whether the answers are letters (`doc_to_choice` or the target), not the texts of the choices."""

    @property
    def is_shown(self) -> bool:
        return self.column is not None


def find_layout(source: ChoiceFields, fields: Fields, *, column: str | None, where: str) -> ChoiceLayout:
    """Return how the prompt shows the choices of a document.

    Raises:
        TaskError: The prompt contains the choices in a way that cannot be permuted.
    """
    choices = source.read_choices(fields)
    if choices is None and not _is_letter(source.target(copy_fields(fields))):
        raise TaskError(
            "the task has no choices whose order or letters can vary: it has no `doc_to_choice`, and its target is no letter",
            where=where,
            hint="vary `shots`, `template`, `delimiter` or `system` instead",
        )
    if column is not None:
        named = ChoiceColumn(tuple(column.split(".")))
        if named.read(fields) is None:
            raise TaskError(
                f"the column `{column}` is not a list of texts", where=where, hint="see `choice_column`"
            )
        return ChoiceLayout(column=named, labelled=not source.lists_texts(fields, named))
    found = [
        ChoiceLayout(column=one, labelled=labelled)
        for one in _iterate_columns(fields)
        if (labelled := source.find_role(fields, one)) is not None
    ]
    if len(found) > 1:
        names = [layout.column.name for layout in found if layout.column is not None]
        raise TaskError(
            f"the choices cannot be permuted: the prompt shows several lists, {' and '.join(f'`{name}`' for name in names)}",
            where=where,
            hint=f"add `choice_column: {names[0]}`",
        )
    if found:
        return found[0]
    text = source.text(copy_fields(fields))
    embedded = not isinstance(text, str) or all(str(choice) in text for choice in choices or ())
    if embedded or choices is None or _is_label_list(choices):
        raise TaskError(
            "the choices cannot be permuted: they are part of the prompt, but no column of the document lists them",
            where=where,
            hint="write the prompt with a list column: `A. {{choices[0]}}`, or with `choice_column` and `{{choice_list}}`",
        )
    return ChoiceLayout(column=None, labelled=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceFields:
    """The question, the target and the choices of a document, or of a few-shot example, in a variant."""

    text: FieldFunction
    target: FieldFunction
    choices: FieldFunction | None
    variant: VariantSpec
    layout: Callable[[], ChoiceLayout]
    where: str
    native_text: FieldFunction | None = None
    """The question with the letters of the variant, of a task that writes `{{choice_list}}`."""

    def read_choices(self, fields: Fields) -> list[Any] | None:
        found = None if self.choices is None else self.choices(copy_fields(fields))
        return None if found is None else list(found)

    def find_role(self, fields: Fields, column: ChoiceColumn) -> bool | None:
        """Return whether the answers are letters in front of the texts of a column (True) or these texts (False); None if the
        prompt does not show the texts as choices."""
        texts = column.read(fields)
        if texts is None or _is_label_list(texts) or not _shows(self.text, fields, column, len(texts)):
            return None
        if self.lists_texts(fields, column):
            return False
        labels = self._list_labels(fields, len(texts))
        if len(labels) < len(texts):
            return None
        pieces = _split(self.text(column.write(fields, _build_markers(len(texts)))))
        marked = {index for index, before in pieces if _replace_last_label(before, labels[index], "")[1]}
        return True if len(marked) == len(texts) else None

    def lists_texts(self, fields: Fields, column: ChoiceColumn) -> bool:
        """Return whether the choices are the texts of a column."""
        markers = _build_markers(len(column.read(fields) or ()))
        try:
            listed = self.read_choices(column.write(fields, markers))
        except Exception:  # noqa: BLE001 - user code: the function may need real values
            return False
        return (
            listed is not None
            and len(listed) == len(markers)
            and all(marker in str(choice) for marker, choice in zip(markers, listed, strict=True))
        )

    def names_letters_elsewhere(self, fields: Fields) -> bool:
        """Return whether the prompt names the letters also in other places than in front of the choices."""
        column, labels = self.layout().column, self._labels(fields)
        if column is None or len(labels) < 2:
            return False
        pieces = _split(self.text(column.write(fields, _build_markers(len(self._options(fields))))))
        rest = [_replace_last_label(before, labels[index], "")[0] for index, before in pieces if index >= 0]
        rest += [before for index, before in pieces if index < 0]
        first, second = map(re.escape, labels[:2])
        pattern = rf"(?<!\w){first}(?!\w)\W{{1,8}}(?:or\W{{1,3}})?{second}(?!\w)"
        return re.search(pattern, " ".join(rest)) is not None

    def render_text(self, fields: Fields, *_: Any) -> Any:
        """Return the question with the choices in the order and with the letters of the variant."""
        layout = self.layout()
        if layout.column is None:
            return self.text(fields)
        options, order = self._options(fields), self.find_order(fields)
        moved = [options[index] for index in order]
        if not self.variant.choice_letters or not layout.labelled:
            return self.text(layout.column.write(fields, moved))
        if self.native_text is not None:
            return self.native_text(layout.column.write(fields, moved))
        return self._replace_letters(fields, options, moved)

    def render_choices(self, fields: Fields, *_: Any) -> list[Any] | None:
        """Return the choices: the texts in the order of the variant, or its letters."""
        layout, choices = self.layout(), self.read_choices(fields)
        if choices is None:
            return None
        if layout.labelled:
            return self._to_letters(choices)
        if not layout.is_shown:
            return choices
        return [choices[index] for index in self.find_order(fields)]

    def render_target(self, fields: Fields, *_: Any) -> Any:
        """Return the target for the order and the letters of the variant."""
        target = self.target(fields)
        if not self.layout().is_shown:
            return target
        if isinstance(target, list):
            return [self._move_target(one, fields) for one in target]
        return self._move_target(target, fields)

    def find_order(self, fields: Fields) -> list[int]:
        """Return the original positions of the choices in the order in which they are shown."""
        if not self.layout().is_shown:
            return list(range(len(self.read_choices(fields) or ())))
        options = self._options(fields)
        if self.layout().labelled and len(options) > len(labels := self._labels(fields)):
            raise TaskError(
                f"the document has {len(options)} choices, but only {len(labels)} letters", where=self.where
            )
        return permute(
            self.variant,
            options,
            find_gold=lambda: self._gold_index(fields),
            find_text=lambda: self.text(copy_fields(fields)),
        )

    def to_original(self, fields: Fields, shown: int) -> int:
        """Return the original position of the choice that is shown at a position."""
        order = self.find_order(fields)
        return order[shown] if 0 <= shown < len(order) else shown

    def list_letters(self, fields: Fields) -> list[tuple[str, str]]:
        """Return the original letter of each position and that of the variant; empty if the letters do not vary."""
        layout = self.layout()
        if not self.variant.choice_letters or not (layout.is_shown and layout.labelled):
            return []
        return [(label, self._to_letter(label, index)) for index, label in enumerate(self._labels(fields))]

    def answer_to_original(self, fields: Fields, answer: str) -> str:
        """Return the original letter of an answer that is a letter, else the answer."""
        labels = self._labels(fields)
        shown = [self._to_letter(label, index) for index, label in enumerate(labels)]
        core = answer.strip(_AROUND)
        return labels[self.to_original(fields, shown.index(core))] if core in shown else answer

    def _options(self, fields: Fields) -> list[Any]:
        column = self.layout().column
        options = None if column is None else column.read(fields)
        if options is None:
            raise TaskError(
                f"the document has no choices in `{column.name if column else ''}`, so they cannot be permuted",
                where=self.where,
            )
        return options

    def _labels(self, fields: Fields) -> list[str]:
        return self._list_labels(fields, len(self._options(fields)) if self.choices is None else 0)

    def _list_labels(self, fields: Fields, count: int) -> list[str]:
        choices = self.read_choices(fields)
        if choices is None:
            return list(ascii_uppercase[:count])
        return [str(choice).strip(_AROUND) for choice in choices]

    def _to_letter(self, label: str, index: int) -> str:
        letters = self.variant.choice_letters
        if not letters:
            return label
        if index >= len(letters):
            raise TaskError(
                f"the variant `{self.variant.name}` has {len(letters)} letters, but the document has more choices",
                where=self.where,
            )
        return letters[index]

    def _to_letters(self, choices: Sequence[Any]) -> list[Any]:
        """Return other letters in the format of the choices: `(A)` becomes `(1)`."""
        if not self.variant.choice_letters:
            return list(choices)
        found = []
        for index, choice in enumerate(choices):
            label = str(choice).strip(_AROUND)
            found.append(str(choice).replace(label, self._to_letter(label, index), 1))
        return found

    def _gold_index(self, fields: Fields) -> int:
        target = self.target(copy_fields(fields))
        if isinstance(target, list):
            target = target[0] if target else None
        index = self._target_index(target, fields)
        if index is None:
            raise TaskError(
                f"the target {target!r:.60} is not one of the choices, so they cannot be permuted",
                where=self.where,
            )
        return index

    def _target_index(self, target: Any, fields: Fields) -> int | None:
        if isinstance(target, int) and not isinstance(target, bool):
            return target
        if not isinstance(target, str):
            return None
        choices = self.read_choices(fields)
        if choices is not None and target in choices:
            return choices.index(target)
        labels = self._labels(fields) if self.layout().is_shown or choices is not None else []
        core = target.strip(_AROUND)
        if self.layout().labelled and core in labels:
            return labels.index(core)
        options = self._options(fields) if self.layout().is_shown else []
        return options.index(target) if target in options else None

    def _move_target(self, target: Any, fields: Fields) -> Any:
        layout, order = self.layout(), self.find_order(fields)
        index = self._target_index(target, fields)
        if index is None or not 0 <= index < len(order):
            if self.choices is not None:
                return target  # never correct, as in the task
            raise TaskError(
                f"the target {target!r:.60} is not one of the choices, so they cannot be permuted",
                where=self.where,
            )
        place = order.index(index)
        if not isinstance(target, str):
            return place
        if not layout.labelled or target.strip(_AROUND) not in self._labels(fields):
            return target  # the text of the choice
        labels = self._labels(fields)
        core = target.strip(_AROUND)
        return target.replace(core, self._to_letter(labels[place], place), 1)

    def _replace_letters(self, fields: Fields, options: Sequence[Any], moved: Sequence[Any]) -> str:
        column, labels = self.layout().column, self._labels(fields)
        assert column is not None
        text = self.text(column.write(fields, _build_markers(len(options))))
        plain = self.text(copy_fields(fields))
        changed, labelled = [], set()
        for index, before in _split(text):
            if index < 0:
                changed.append(before)
                continue
            piece, found = _replace_last_label(before, labels[index], self._to_letter(labels[index], index))
            labelled |= {index} if found else set()
            changed += [piece, f"{_OPEN}{index}{_CLOSE}"]
        if len(labelled) < len(options):
            raise TaskError(
                "the letters cannot be changed: the prompt does not write each letter in front of its choice",
                where=self.where,
                hint="write the prompt with `choice_column` and `{{choice_list}}`",
            )
        for convert in (str, lambda value: str(value).strip()):
            if _fill(text, [convert(one) for one in options]) == plain:
                return _fill("".join(changed), [convert(one) for one in moved])
        raise TaskError(
            "the letters cannot be changed: the prompt changes the texts of the choices", where=self.where
        )


def permute(
    variant: VariantSpec,
    options: Sequence[Any],
    *,
    find_gold: Callable[[], int] = lambda: -1,
    find_text: Callable[[], Any] = str,
) -> list[int]:
    """Return the original positions of the choices in the order of a variant. `shuffle` depends on the seed and on the question and
    choices of the document, so that rendering and scoring agree.

    >>> permute(VariantSpec(name="v", choice_order="rotate:1"), ["a", "b", "c"])
    [1, 2, 0]
    >>> permute(VariantSpec(name="v", choice_order="gold:2"), ["a", "b", "c"], find_gold=lambda: 0)
    [2, 1, 0]
    """
    places = list(range(len(options)))
    kind, _, number = variant.choice_order.partition(":")
    match kind:
        case "reverse":
            places.reverse()
        case "shuffle":
            content = digest_json([str(find_text()), *(str(one) for one in options)])
            random.Random(f"{variant.seed}/{content}").shuffle(places)
        case "rotate" if places:
            by = int(number) % len(places)
            places = places[by:] + places[:by]
        case "gold" if int(number) < len(places):
            gold = find_gold()
            if 0 <= gold < len(places):
                places[gold], places[int(number)] = places[int(number)], places[gold]
    return places


def _replace_last_label(text: str, label: str, letter: str) -> tuple[str, bool]:
    """Replace the label at the end of a text, before a choice; return whether there is one."""
    end = _BETWEEN.search(text)
    between = end[0] if end else ""
    head = text[: len(text) - len(between)]
    if not head.endswith(label) or re.search(r"\w\Z", head[: -len(label)]):
        return text, False
    return f"{head[: -len(label)]}{letter}{between}", True


def _build_markers(count: int) -> list[str]:
    return [f"{_OPEN}{index}{_CLOSE}" for index in range(count)]


def _split(text: str) -> list[tuple[int, str]]:
    """Return (number of a marker, text before it) in order, and (-1, text after the last one)."""
    pieces = re.split(f"{_OPEN}(\\d+){_CLOSE}", text)
    return [
        *((int(pieces[at]), pieces[at - 1]) for at in range(1, len(pieces), 2)),
        (-1, pieces[-1]),
    ]


def _fill(text: str, options: Sequence[str]) -> str:
    return re.sub(f"{_OPEN}(\\d+){_CLOSE}", lambda found: options[int(found[1])], text)


def _shows(text: FieldFunction, fields: Fields, column: ChoiceColumn, count: int) -> bool:
    """Return whether a prompt shows every choice equally often."""
    markers = _build_markers(count)
    try:
        shown = text(column.write(fields, markers))
    except Exception:  # noqa: BLE001 - user code: the function may need real values
        return False
    counts = {shown.count(marker) for marker in markers} if isinstance(shown, str) else {0}
    return len(counts) == 1 and counts != {0}


def _iterate_columns(fields: Fields) -> Iterator[ChoiceColumn]:
    """Yield the places that may have the choices: lists, lists within a column, and columns such as opa, opb, opc."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from (ChoiceColumn((name, str(key))) for key in value)
        else:
            yield ChoiceColumn((name,))
    names = set(fields)
    groups: list[tuple[str, ...]] = []
    for first in fields:
        for letters in (tuple("0123456789"), tuple(ascii_uppercase), *LETTER_SETS[:2]):
            for at in [match.start() for match in re.finditer(re.escape(letters[0]), first)]:
                before, after = first[:at], first[at + len(letters[0]) :]
                group = tuple(
                    takewhile(names.__contains__, (f"{before}{letter}{after}" for letter in letters))
                )
                groups += [group] if len(group) > 1 and group not in groups else []
    for group in groups:
        if not any(set(group) < set(other) for other in groups):
            yield ChoiceColumn(group, is_list=False)


def _is_text_list(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) > 1
        and all(isinstance(one, (str, int, float)) and not isinstance(one, bool) for one in value)
    )


def _is_letter(value: Any) -> bool:
    return isinstance(value, str) and value.strip(_AROUND) in tuple(ascii_uppercase)


def _is_label_list(values: Sequence[Any]) -> bool:
    """Return whether a list is a sequence of letters or numbers: A B C, (a) (b), 1 2 3."""
    cores = [str(value).strip(_AROUND) for value in values]
    known = (tuple(ascii_uppercase), *LETTER_SETS)
    return any(tuple(cores) == letters[: len(cores)] for letters in known)
