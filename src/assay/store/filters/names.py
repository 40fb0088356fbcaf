"""The names that a filter expression can use for one run: facts about every document, metrics, columns, labels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal

from assay.core.records.endings import ENDINGS
from assay.store.filters.syntax import FilterError, Name, quote_name
from assay.store.index.columns import OUTCOMES, Columns

__all__ = ["DOCUMENT_PREFIX", "NameCatalog", "NameInfo"]

DOCUMENT_PREFIX = "doc."
"""`doc.answer` is the column `answer` of the document, even though `answer` has another meaning."""

ValueKind = Literal["number", "text", "flag"]
Source = Literal["index", "label", "judged", "field", "target", "prompt", "response", "judge"]
"""Where the values are: in the index, in the labels, or in a table of the journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameInfo:
    """One name: what it means, the kind of its values, and where they are."""

    name: str
    """As written in an expression."""

    kind: ValueKind
    source: Source
    key: str
    """The name in its source: the metric, the column."""

    part: str = ""
    """The filter pipeline of a metric or answer."""

    description: str = ""
    values: tuple[str, ...] = ()
    """The most frequent values, for completion."""

    several: bool = False
    """Whether a document can have several values; a condition holds if it holds for one of them."""

    long: bool = False
    """Whether the values are long texts, which are not kept in memory."""


def _define(
    name: str, kind: ValueKind, source: Source, description: str, *, several: bool = False, long: bool = False
) -> NameInfo:
    return NameInfo(
        name=name, kind=kind, source=source, key=name, description=description, several=several, long=long
    )


_BUILT_IN = [
    _define("score", "number", "index", "score of the first metric of the task"),
    _define("right", "flag", "index", "has the full score"),
    _define("wrong", "flag", "index", "has a score, but not the full one"),
    _define("length", "number", "index", "characters of the responses"),
    _define("ending", "text", "index", "how the document ended"),
    _define("task", "text", "index", "name of the task"),
    _define("document", "number", "index", "number of the document in its task"),
    _define("answer", "text", "judged", "answer after the first filter; answer[NAME] after another one"),
    _define("target", "text", "target", "expected answer"),
    _define("response", "text", "response", "text of the responses", long=True),
    _define("reasoning", "text", "response", "reasoning of the responses", long=True),
    _define("prompt", "text", "prompt", "text of the prompts", long=True),
    _define("why", "text", "judged", "why the document has no score"),
    _define("finish", "text", "response", "why the model stopped: stop, length, …", several=True),
    _define("input_tokens", "number", "response", "tokens of the prompts"),
    _define("output_tokens", "number", "response", "tokens of the responses"),
    _define("reasoning_tokens", "number", "response", "tokens of the reasoning"),
    _define("tokens", "number", "response", "input and output tokens"),
    _define("seconds", "number", "response", "time of the requests in seconds"),
    _define("cost_usd", "number", "response", "cost of the requests in US dollars"),
    _define("judge", "text", "judge", "name of a judge that was asked", several=True),
    _define("judge_reply", "text", "judge", "reply of a judge", several=True, long=True),
    _define("label", "text", "label", "verdict of a person: right or wrong", several=True),
    _define("note", "text", "label", "note of a person", several=True),
    _define("labeller", "text", "label", "person who labelled the document", several=True),
    _define("labelled", "flag", "label", "has a label"),
    _define("starred", "flag", "label", "has a star"),
]
_FLAGS = {
    ending: NameInfo(name=ending, kind="flag", source="index", key=ending, description=f"ending: {meaning}")
    for ending, meaning in [*ENDINGS.items(), ("open", "not processed yet")]
}
_FIXED_VALUES = {"ending": OUTCOMES, "label": ("right", "wrong")}
_MAX_VALUES = 120


class NameCatalog:
    """Resolves the names of expressions for the documents of one run."""

    def __init__(
        self, columns: Columns, other_fields: Iterable[str] = (), metrics: Iterable[str] = ()
    ) -> None:
        self._columns = columns
        self._built_in = {info.name: info for info in _BUILT_IN}
        self.metrics = list(
            dict.fromkeys([*(one[1] for listed in columns.metrics.values() for one in listed), *metrics])
        )
        self.pipelines = list(dict.fromkeys(one[0] for listed in columns.metrics.values() for one in listed))
        self.fields = list(dict.fromkeys([*columns.categories, *sorted(other_fields)]))

    def list_names(self) -> list[NameInfo]:
        """Return all names in the order in which they are suggested."""
        taken = {*self._built_in, *_FLAGS, *self.metrics}
        return [
            *map(self._add_values, self._built_in.values()),
            *(self._describe_metric(metric) for metric in self.metrics if metric not in self._built_in),
            *(self._describe_field(name, prefix=name in taken) for name in self.fields),
            *_FLAGS.values(),
        ]

    def resolve(self, name: Name) -> NameInfo:
        """Return what a name means.

        Raises:
            FilterError: There is no such name.
        """
        text = name.text
        if name.quoted:
            return self._resolve_field(name, text)
        if text.startswith(DOCUMENT_PREFIX):
            return self._resolve_field(name, text.removeprefix(DOCUMENT_PREFIX))
        if text in self.metrics and text not in self._built_in:
            self._check_part(name)
            return replace(self._describe_metric(text), part=name.part)
        if name.part:
            if text != "answer":
                raise FilterError(
                    f"`{text}` has no parts",
                    position=name.start,
                    length=name.end - name.start,
                    hint="only metrics and `answer` have a filter in brackets",
                )
            self._check_part(name)
            return replace(self._built_in["answer"], part=name.part)
        if text in self._built_in:
            return self._add_values(self._built_in[text])
        if text in _FLAGS:
            return _FLAGS[text]
        if text in self.fields or text.partition(".")[0] in self.fields:
            return self._resolve_field(name, text)
        raise self._build_unknown_error(name, text)

    def _resolve_field(self, name: Name, text: str) -> NameInfo:
        if text in self.fields or text.partition(".")[0] in self.fields:
            return self._describe_field(text)
        raise self._build_unknown_error(name, text, self.fields)

    def _check_part(self, name: Name) -> None:
        if name.part and name.part not in self.pipelines:
            raise FilterError(
                f"no filter is called `{name.part}`",
                position=name.start,
                length=name.end - name.start,
                hint=f"the run has: {', '.join(self.pipelines)}",
            )

    def _describe_metric(self, metric: str) -> NameInfo:
        return NameInfo(
            name=quote_name(metric), kind="number", source="judged", key=metric, description="metric"
        )

    def _describe_field(self, field: str, *, prefix: bool = False) -> NameInfo:
        category = self._columns.categories.get(field)
        values = tuple(category.values)[:_MAX_VALUES] if category is not None else ()
        shown = quote_name(field)
        if prefix:
            shown = f"{DOCUMENT_PREFIX}{field}" if shown == field else shown
        return NameInfo(
            name=shown,
            kind="text",
            source="field",
            key=field,
            description="column of the documents",
            values=values,
        )

    def _add_values(self, info: NameInfo) -> NameInfo:
        if info.name == "task":
            return replace(info, values=tuple(self._columns.tasks))
        return replace(info, values=_FIXED_VALUES.get(info.name, ()))

    def _build_unknown_error(self, name: Name, text: str, known: Iterable[str] = ()) -> FilterError:
        names = list(known) or [info.name for info in self.list_names()]
        close = get_close_matches(text, names, n=1, cutoff=0.6)
        kind = "column" if known else "name"
        if close:
            hint = f"did you mean `{close[0]}`?"
        elif self.fields:
            hint = f"metrics: {', '.join(self.metrics[:6])}; columns: {', '.join(self.fields[:8])}"
        else:
            hint = f"known names: {', '.join(names[:12])}"
        return FilterError(
            f"unknown {kind} `{text}`", position=name.start, length=name.end - name.start, hint=hint
        )
