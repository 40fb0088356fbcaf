"""Undo the documented changes of lm_eval after a version, so that recordings of that version can be compared.

`docs/coming-from/lm-eval.md` lists the changes. Everything that differs after them is unexplained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from assay.core.dialects import Dialect
from assay.scoring.filters import FILTERS
from assay.tasks.prompts import templates
from assay.tasks.prompts.fewshot_examples import FewshotSampler
from tools.oracle.corpus import CorpusError

__all__ = ["apply_version"]


class StripLeft:
    """Strip white space at the start: `remove_whitespace` of lm_eval 0.4.4 to 0.4.9.1."""

    per_document: ClassVar[bool] = True

    def apply(self, responses: Sequence[Any], documents: Sequence[Any]) -> list[list[str]]:
        return [[value.lstrip() for value in values] for values in responses]


def apply_version(version: str) -> None:
    """Make this process evaluate tasks as a version of lm_eval did. It cannot be undone."""
    try:
        release = tuple(int(part) for part in version.split("."))
    except ValueError:
        raise CorpusError(f"`{version}` is not a version\nhint: `--as_version 0.4.8`") from None
    if release < (0, 4, 13):
        _replace(Dialect, "default_direction", _direct_ter_up)
        _replace(FewshotSampler, "_pick_first", _pick_first_rows)
    if release < (0, 4, 10):
        defaults = {"do_sample": False, "temperature": 0} if release >= (0, 4, 9) else {"do_sample": False}
        _replace(Dialect, "default_generation", lambda dialect, until: {"until": until, **defaults})
        _replace(Dialect, "may_draw_fewer_examples", property(lambda dialect: True))
    if release < (0, 4, 9, 2):
        FILTERS.register("strip_left")(StripLeft)
        stripped = "strip_left" if release >= (0, 4, 4) else "remove_leading_space"
        _replace(Dialect, "resolve_filter", _rename_filter({"remove_whitespace": stripped}))
    if release < (0, 4, 4):
        templates._environment().keep_trailing_newline = False


def _replace(owner: type, name: str, value: Any) -> None:
    if not hasattr(owner, name):
        raise AttributeError(f"{owner.__name__} has no attribute {name}")
    setattr(owner, name, value)


def _direct_ter_up(dialect: Dialect, metric: str, registered: bool | None) -> bool | None:
    return True if metric == "ter" else registered


def _pick_first_rows(sampler: FewshotSampler, count: int, document: Mapping[str, Any] | None) -> list[int]:
    return list(range(min(count, len(sampler.pool))))


def _rename_filter(names: Mapping[str, str]) -> Callable[[Dialect, str], str]:
    return lambda dialect, name: names.get(name, name)
