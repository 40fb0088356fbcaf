"""Completion of filter expressions: what can follow at a place of an expression that is being typed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from assay.store.filters.names import NameCatalog, NameInfo
from assay.store.filters.syntax import FilterError, Name, Token, quote_value, split_tokens

__all__ = ["Completion", "Suggestion", "complete_expression"]

_MAX_SUGGESTIONS = 12
_NUMBER_OPERATORS = (("<", "less than"), ("<=", "at most"), (">", "more than"), (">=", "at least"), ("=", "equal"), ("!=", "not equal"))  # fmt: skip
_TEXT_OPERATORS = (("=", "equal"), ("!=", "not equal"), ("~", "contains text or matches /pattern/"), ("!~", "does not"), ("in", "one of (…, …)"))  # fmt: skip
_CONNECTIVES = (("and", "both conditions"), ("or", "one of the conditions"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A text that can be inserted."""

    text: str
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Suggestions for a place in an expression, which replace the text from `start` to `end`."""

    start: int
    end: int
    suggestions: tuple[Suggestion, ...] = ()


def complete_expression(text: str, cursor: int, catalog: NameCatalog) -> Completion:
    """Return what can be typed at a place: names, operators, values or connectives."""
    cursor = min(max(cursor, 0), len(text))
    before = text[:cursor]
    dot = "." if before.endswith(".") else ""  # a name such as `doc.answer` that is not complete
    try:
        tokens = [token for token in split_tokens(before.removesuffix(dot)) if token.kind != "end"]
    except FilterError:
        return Completion(start=cursor, end=cursor)
    typed: Token | None = None
    if tokens and tokens[-1].end + len(dot) == cursor and _can_extend(tokens[-1]):
        typed = tokens.pop()
        typed = replace(typed, text=typed.text + dot, end=cursor)
    start = typed.start if typed is not None else cursor
    prefix = "" if typed is None else typed.text
    if typed is not None and typed.kind == "text" and not typed.closed:
        found = _suggest_after(tokens, catalog, quoted=True)
    elif typed is not None and typed.kind in ("pattern", "number"):
        found = []
    else:
        found = _suggest_after(tokens, catalog)
    end = _find_end(text, cursor, typed)
    return Completion(start=start, end=end, suggestions=tuple(_rank(found, prefix)))


def _can_extend(token: Token) -> bool:
    if token.kind in ("word", "number", "pattern"):
        return True
    return token.kind in ("text", "name") and not token.closed


def _find_end(text: str, cursor: int, typed: Token | None) -> int:
    """Return the end of the word around the cursor."""
    if typed is None or typed.kind != "word":
        return cursor
    end = cursor
    while end < len(text) and (text[end].isalnum() or text[end] in "_-."):
        end += 1
    return end


def _suggest_after(
    tokens: Sequence[Token], catalog: NameCatalog, *, quoted: bool = False
) -> list[Suggestion]:
    """Return everything that can follow complete tokens."""
    last = tokens[-1] if tokens else None
    if (
        last is None
        or _is_connective(last)
        or (last.kind == "punctuation" and last.text == "(" and not _is_list(tokens))
    ):
        if quoted:
            return []
        names = [Suggestion(text=info.name, description=info.description) for info in catalog.list_names()]
        return (
            names
            if last is not None and last.text.lower() == "not"
            else [*names, Suggestion(text="not", description="the condition does not hold")]
        )
    if last.kind == "punctuation" and last.text == "[":
        return [Suggestion(text=name, description="filter") for name in catalog.pipelines]
    if last.kind == "operator" or _is_list(tokens):
        info = _find_compared_name(tokens, catalog)
        values = [] if info is None else info.values
        return [
            Suggestion(text=quote_value(value), description=info.name if info else "") for value in values
        ]
    info = _find_last_name(tokens, catalog)
    if info is None:
        return [Suggestion(text=word, description=about) for word, about in _CONNECTIVES]
    if info.kind == "flag":
        return [Suggestion(text=word, description=about) for word, about in _CONNECTIVES]
    listed = _NUMBER_OPERATORS if info.kind == "number" else _TEXT_OPERATORS
    return [Suggestion(text=word, description=about) for word, about in listed]


def _is_connective(token: Token) -> bool:
    return token.kind == "word" and token.text.lower() in ("and", "or", "not")


def _is_list(tokens: Sequence[Token]) -> bool:
    """Whether the tokens end inside `in (…`, after `(` or a comma."""
    if not tokens or tokens[-1].text not in ("(", ",") or tokens[-1].kind != "punctuation":
        return False
    for at in range(len(tokens) - 1, 0, -1):
        if tokens[at].kind == "punctuation" and tokens[at].text == ")":
            return False
        if tokens[at].kind == "punctuation" and tokens[at].text == "(":
            return tokens[at - 1].kind == "word" and tokens[at - 1].text.lower() == "in"
    return False


def _find_compared_name(tokens: Sequence[Token], catalog: NameCatalog) -> NameInfo | None:
    """Return the name whose value follows."""
    at = len(tokens) - 1
    if _is_list(tokens):
        while tokens[at].text.lower() != "in":
            at -= 1
    return _resolve(tokens[at - 1], catalog) if at > 0 else None


def _find_last_name(tokens: Sequence[Token], catalog: NameCatalog) -> NameInfo | None:
    """Return the name that the tokens end with; None if they end with a value."""
    last = tokens[-1]
    if last.kind == "punctuation" and last.text == "]" and len(tokens) > 3:
        return _resolve(tokens[-4], catalog)
    if last.kind not in ("word", "name"):
        return None
    if len(tokens) > 1 and (tokens[-2].kind == "operator" or tokens[-2].text == ","):
        return None
    return _resolve(last, catalog)


def _resolve(token: Token, catalog: NameCatalog) -> NameInfo | None:
    if token.kind not in ("word", "name"):
        return None
    try:
        return catalog.resolve(
            Name(text=token.text, quoted=token.kind == "name", start=token.start, end=token.end)
        )
    except FilterError:
        return None


def _rank(found: Iterable[Suggestion], typed: str) -> list[Suggestion]:
    """Return the suggestions that fit what was typed: those that start with it first."""
    wanted = typed.lower()
    starting, containing = [], []
    for one in found:
        plain = one.text.lower().lstrip("\"`'")
        if plain == wanted and one.text == typed:
            continue
        if plain.startswith(wanted):
            starting.append(one)
        elif len(wanted) > 1 and wanted in plain:
            containing.append(one)
    return [*starting, *containing][:_MAX_SUGGESTIONS]
