"""Regular expressions in linear time: a search reads each character of a text once, whatever the pattern is.

A pattern comes from a user and the texts from a model, and the viewer searches hundreds of thousands of them. Python's `re`
backtracks: `(a+)+b` takes longer than a lifetime for forty letters, and nothing can interrupt it. Here, a pattern becomes a
nondeterministic automaton whose state sets are computed once and reused (a lazy deterministic automaton).

The syntax is that of `re` without what needs backtracking: back-references, lookaround and possessive quantifiers. A search
only says whether a text matches, so lazy quantifiers are the same as greedy ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Pattern", "PatternError", "PatternTooSlow", "compile_pattern"]

MAX_STATES = 1000
"""Maximum size of a pattern; counted repetition multiplies it."""

_MAX_WORK = 2_000_000
"""Maximum number of automaton states visited to compute state sets: a second or two."""

_MAX_SPAN_WORK = 20_000
"""The same, to mark the matches in one short text."""

_MAX_CACHED_ITEMS = 500_000
_MAX_SIMPLE_PATHS = 200
"""A pattern without loops and with fewer ways through it than this can be searched by `re` in linear time."""

_MAX_DEPTH = 50
_MAX_REPEAT = 1000
_START, _END, _NEWLINE, _FINAL_NEWLINE, _WORD, _OTHER = range(6)
"""What precedes or follows a place in a text."""

Matcher = Callable[[str], bool]
_ESCAPED_CLASSES: dict[str, Matcher] = {
    "d": str.isdecimal,
    "w": lambda char: char.isalnum() or char == "_",
    "s": str.isspace,
}
_ESCAPED_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "0": "\0"}
_ASSERTIONS = {"b": "word boundary", "B": "no word boundary", "A": "start", "Z": "end", "z": "end"}
_COUNT = re.compile(r"\{(?:(\d+)(?:(,)(\d*))?|(,)(\d+))\}")


class PatternError(ValueError):
    """An invalid or unsupported pattern."""

    def __init__(self, what: str, position: int, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.position = position
        self.hint = hint


class PatternTooSlow(PatternError):
    """A pattern whose state sets are too many and too large."""


@dataclass(frozen=True, slots=True)
class _Character:
    """One character: a literal, or a class."""

    matches: Matcher
    source: str
    literal: str = ""


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Alternatives:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    part: _Node
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class _Assertion:
    kind: str
    source: str


_Node = _Character | _Sequence | _Alternatives | _Repeat | _Assertion


def compile_pattern(text: str, flags: str = "") -> Pattern:
    """Compile a pattern; `flags` are those of `re` as letters: i, m, s.

    >>> compile_pattern(r"(\\d+) apples?").matches("I have 12 apples")
    True
    >>> compile_pattern("(a+)+b").matches("a" * 5000)
    False

    Raises:
        PatternError: The pattern is invalid, unsupported or too large.
    """
    inline = re.match(r"\(\?([ims]+)\)", text)
    if inline is not None:
        flags += inline.group(1)
    parser = _PatternParser(text, flags)
    parser.at = inline.end() if inline else 0
    return Pattern(text, parser.parse(), flags)


class _PatternParser:
    """A recursive descent parser."""

    def __init__(self, text: str, flags: str) -> None:
        self.text = text
        self.at = 0
        self._ignore_case = "i" in flags
        self._multiline = "m" in flags
        self._dot_matches_all = "s" in flags

    def parse(self) -> _Node:
        """Parse the whole pattern."""
        node = self._parse_alternatives(0)
        if self.at < len(self.text):
            raise PatternError("there is no `(` for this `)`", self.at, hint=r"write \) for a parenthesis")
        return node

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _parse_alternatives(self, depth: int) -> _Node:
        if depth > _MAX_DEPTH:
            raise PatternError("the pattern is nested too deeply", self.at)
        parts = [self._parse_sequence(depth)]
        while self._peek() == "|":
            self.at += 1
            parts.append(self._parse_sequence(depth))
        return parts[0] if len(parts) == 1 else _Alternatives(tuple(parts))

    def _parse_sequence(self, depth: int) -> _Node:
        parts: list[_Node] = []
        while (char := self._peek()) and char not in "|)":
            parts.append(self._parse_quantified(depth))
        return _Sequence(tuple(parts))

    def _parse_quantified(self, depth: int) -> _Node:
        start = self.at
        if self._peek() in ("*", "+", "?"):
            raise PatternError(
                f"nothing to repeat before `{self._peek()}`",
                start,
                hint=f"write \\{self._peek()} for the character",
            )
        node = self._parse_part(depth)
        repeated = False
        while (counts := self._read_quantifier()) is not None:
            if repeated:
                raise PatternError("two quantifiers in a row", self.at - 1, hint="use parentheses")
            repeated = True
            node = _Repeat(node, *counts)
            if self._peek() == "?":
                self.at += 1
            elif self._peek() == "+":
                raise PatternError("possessive quantifiers are not supported", self.at)
        return node

    def _read_quantifier(self) -> tuple[int, int | None] | None:
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        char = self._peek()
        if char in simple:
            self.at += 1
            return simple[char]
        if char != "{" or (found := _COUNT.match(self.text, self.at)) is None:
            return None
        low = int(found[1] or 0)
        high = low if found[1] and not found[2] else int(found[3] or found[5] or 0) or None
        if found[2] and found[3] == "0":
            high = 0
        if max(low, high or 0) > _MAX_REPEAT:
            raise PatternError(f"at most {_MAX_REPEAT} repetitions are supported", self.at)
        if high is not None and high < low:
            raise PatternError("the range of repetitions is reversed", self.at)
        self.at = found.end()
        return low, high

    def _parse_part(self, depth: int) -> _Node:
        char = self._peek()
        if char == "(":
            return self._parse_group(depth)
        if char == "[":
            return self._parse_class()
        if char == "\\":
            return self._parse_escape()
        self.at += 1
        if char == ".":
            return _Character((lambda _: True) if self._dot_matches_all else (lambda one: one != "\n"), ".")
        if char == "^":
            return _Assertion("line start" if self._multiline else "start", "^")
        if char == "$":
            return _Assertion("line end" if self._multiline else "text end", "$")
        return self._build_literal(char)

    def _parse_group(self, depth: int) -> _Node:
        start = self.at
        self.at += 1
        if self._peek() == "?":
            named = re.compile(r"\?(?::|P<\w+>)").match(self.text, self.at)
            if named is None:
                what = "lookaround" if re.match(r"\?<?[=!]", self.text[self.at :]) else "this kind of group"
                raise PatternError(
                    f"{what} is not supported",
                    start,
                    hint="join two conditions with `and` or `and not` instead",
                )
            self.at = named.end()
        node = self._parse_alternatives(depth + 1)
        if self._peek() != ")":
            raise PatternError("this `(` has no `)`", start, hint=r"write \( for a parenthesis")
        self.at += 1
        return node

    def _parse_escape(self) -> _Node:
        char = self.text[self.at + 1 : self.at + 2]
        if char in _ASSERTIONS:
            self.at += 2
            return _Assertion(_ASSERTIONS[char], "\\Z" if char == "z" else f"\\{char}")
        start = self.at
        found = self._read_escape()
        if isinstance(found, str):
            return self._build_literal(found)
        return _Character(found, self.text[start : self.at])

    def _read_escape(self) -> str | Matcher:
        """Read an escaped character or class."""
        start = self.at
        char = self.text[start + 1 : start + 2]
        self.at += 2
        if not char:
            raise PatternError("the pattern ends with a backslash", start, hint=r"write \\ for a backslash")
        if char.lower() in _ESCAPED_CLASSES:
            inside = _ESCAPED_CLASSES[char.lower()]
            return inside if char.islower() else (lambda one: not inside(one))
        if char in _ESCAPED_CHARACTERS:
            return _ESCAPED_CHARACTERS[char]
        if char in "xu":
            digits = self.text[self.at : self.at + (2 if char == "x" else 4)]
            if re.fullmatch(r"[0-9a-fA-F]{2}|[0-9a-fA-F]{4}", digits) is None:
                raise PatternError("invalid character code", start)
            self.at += len(digits)
            return chr(int(digits, 16))
        if char.isascii() and char.isdigit():
            raise PatternError("back-references are not supported", start)
        if char.isascii() and char.isalpha():
            raise PatternError(f"unknown escape `\\{char}`", start)
        return char

    def _parse_class(self) -> _Node:
        start = self.at
        self.at += 1
        negated = self._peek() == "^"
        self.at += negated
        ranges: list[tuple[str, str]] = []
        classes: list[Matcher] = []
        escapes: list[str] = []
        first = True
        while (char := self._peek()) != "]" or first:
            if not char:
                raise PatternError("this `[` has no `]`", start, hint=r"write \[ for a bracket")
            first, place = False, self.at
            low = self._read_class_item()
            if not isinstance(low, str):
                classes.append(low)
                escapes.append(self.text[place : self.at])
                continue
            if self._peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                place = self.at
                self.at += 1
                high = self._read_class_item()
                if not isinstance(high, str) or high < low:
                    raise PatternError("invalid range in a character class", place)
                ranges.append((low, high))
            else:
                ranges.append((low, low))
        self.at += 1

        def contains(char: str) -> bool:
            return any(low <= char <= high for low, high in ranges) or any(one(char) for one in classes)

        matches = self._fold(contains)
        source = "".join([*(f"{_escape(low)}-{_escape(high)}" for low, high in ranges), *escapes])
        return _Character(
            (lambda char: not matches(char)) if negated else matches, f"[{'^' if negated else ''}{source}]"
        )

    def _read_class_item(self) -> str | Matcher:
        if self._peek() == "\\":
            if self.text[self.at + 1 : self.at + 2] == "b":
                self.at += 2
                return "\b"
            return self._read_escape()
        char = self._peek()
        self.at += 1
        return char

    def _build_literal(self, char: str) -> _Character:
        return _Character(self._fold(lambda one: one == char), re.escape(char), char)

    def _fold(self, matches: Matcher) -> Matcher:
        if not self._ignore_case:
            return matches

        def matches_any_case(char: str) -> bool:
            upper = char.upper()
            return (
                matches(char)
                or matches(char.lower())
                or (upper.isascii() == char.isascii() and len(upper) == 1 and matches(upper))
            )

        return matches_any_case


# --- automaton ---------------------------------------------------------------------------------------


class _NfaState(NamedTuple):
    kind: str
    """character | split | assertion | accept"""

    value: Any
    """The matcher of a character, the kind of an assertion."""

    targets: tuple[int, ...]


class _NoMatchPossible(Exception):
    """No state is left: the rest of the text cannot change the result."""


class _StateSet(dict[str, "_StateSet | None"]):
    """A state of the deterministic automaton: character -> next state, computed on first use; None after a match."""

    __slots__ = ("before", "ends", "entries", "owner")

    def __init__(self, owner: Pattern, entries: frozenset[int], before: int) -> None:
        super().__init__()
        self.owner = owner
        self.entries = entries
        self.before = before
        self.ends: bool | None = None
        """Whether the pattern matches at the end of a text in this state; None until it is computed."""

    def __missing__(self, char: str) -> _StateSet | None:
        return self.owner.compute_next(self, char)


class Pattern:
    """A compiled pattern. `matches` searches a text."""

    def __init__(self, text: str, tree: _Node, flags: str = "") -> None:
        self.text = text
        self._simple = _build_simple_search(tree, flags)
        self._is_anchored = _is_anchored(tree)
        self.literals = _find_required_literals(tree)
        """Texts that are part of every match, in lower case, the longest first."""

        self._states: list[_NfaState] = []
        accept = self._add("accept", None)
        self._start = self._build(tree, accept)
        kinds = {state.value for state in self._states if state.kind == "assertion"}
        self._has_assertions = bool(kinds)
        self._ends_before_newline = "text end" in kinds
        self._known: dict[tuple[frozenset[int], int], _StateSet] = {}
        self._cached_items = 0
        self._work = 0

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def matches(self, text: str) -> bool:
        """Whether the pattern matches anywhere in a text.

        Raises:
            PatternTooSlow: The pattern has too many states for its texts.
        """
        return self.find_end(text) is not None

    def find_end(self, text: str) -> int | None:
        """Return where the match that ends first ends; None if there is no match."""
        if self._simple is not None:
            found = self._simple(text)
            return None if found is None else int(found.end())
        if self.literals and self.literals[0] not in text.lower():
            return None
        state: _StateSet | None = self._get_state_set(frozenset((self._start,)), _START)
        has_final_newline = self._ends_before_newline and text.endswith("\n")
        try:
            for at, char in enumerate(text[:-1] if has_final_newline else text):
                assert state is not None
                state = state[char]
                if state is None:
                    return at
        except _NoMatchPossible:
            return None
        assert state is not None
        if not has_final_newline:
            if state.ends is None:
                state.ends = self._close(state.entries, state.before, _END)[1]
            return len(text) if state.ends else None
        work = self._work  # limits the states of a pattern, not the number of texts
        open_states, accepted = self._close(state.entries, state.before, _FINAL_NEWLINE)
        if not accepted:
            again = () if self._is_anchored else (self._start,)
            entries = frozenset({*again, *(target for value, target in open_states if value("\n"))})
            found = self._close(entries, _NEWLINE, _END)[1]
        self._work = work
        if accepted:
            return len(text) - 1
        return len(text) if found else None

    def find_spans(self, text: str, limit: int = 20) -> list[tuple[int, int]]:
        """Return the places of matches that do not overlap, each as long as possible; for short texts."""
        spans: list[tuple[int, int]] = []
        at, self._work = 0, 0
        try:
            while at < len(text) and len(spans) < limit and self._work < _MAX_SPAN_WORK:
                end = self._match_at(text, at)
                if end is not None and end > at:
                    spans.append((at, end))
                    at = end
                else:
                    at += 1
        except PatternTooSlow:  # the other matches stay unmarked
            pass
        finally:
            self._work = 0
        return spans

    def _match_at(self, text: str, start: int) -> int | None:
        entries = frozenset((self._start,))
        found = None
        for at in range(start, len(text) + 1):
            before = _classify(text[at - 1]) if at else _START
            after = _classify(text[at]) if at < len(text) else _END
            if after == _NEWLINE and at + 1 == len(text) and self._ends_before_newline:
                after = _FINAL_NEWLINE
            open_states, accepted = self._close(entries, before, after)
            if accepted:
                found = at
            if at == len(text):
                break
            entries = frozenset(target for value, target in open_states if value(text[at]))
            if not entries:
                break
        return found

    def compute_next(self, state: _StateSet, char: str) -> _StateSet | None:
        """Compute and store the transition of a state for a character."""
        if not state.entries:
            raise _NoMatchPossible
        kind = _classify(char)
        open_states, accepted = self._close(state.entries, state.before, kind)
        found: _StateSet | None = None
        if not accepted:
            entries = {target for value, target in open_states if value(char)}
            if not self._is_anchored:
                entries.add(self._start)  # a match can start anywhere
            found = self._get_state_set(frozenset(entries), kind)
        self._cached_items += 1
        state[char] = found
        return found

    def _get_state_set(self, entries: frozenset[int], before: int) -> _StateSet:
        key = (entries, before if self._has_assertions else _OTHER)
        known = self._known.get(key)
        if known is None:
            if self._cached_items > _MAX_CACHED_ITEMS:
                for one in list(self._known.values()):
                    one.clear()
                self._known.clear()
                self._cached_items = 0
            known = self._known[key] = _StateSet(self, entries, key[1])
            self._cached_items += len(entries) + 1
        return known

    def _close(
        self, entries: Iterable[int], before: int, after: int
    ) -> tuple[list[tuple[Matcher, int]], bool]:
        """Return the (matcher, target) of characters that can follow, and whether the pattern matched."""
        waiting = list(entries)
        seen = set(waiting)
        characters: list[tuple[Matcher, int]] = []
        accepted = False
        while waiting:
            kind, value, targets = self._states[waiting.pop()]
            if kind == "character":
                characters.append((value, targets[0]))
                continue
            if kind == "accept":
                accepted = True
            elif kind == "assertion" and not _holds(value, before, after):
                continue
            for target in targets:
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
        self._work += len(seen)
        if self._work > _MAX_WORK:
            raise PatternTooSlow(
                "the pattern takes too long", 0, hint="make it shorter, or add other conditions with `and`"
            )
        return characters, accepted

    def _add(self, kind: str, value: Any, *targets: int) -> int:
        if len(self._states) >= MAX_STATES:
            raise PatternError("the pattern is too large", 0, hint="use smaller repetition counts")
        self._states.append(_NfaState(kind, value, targets))
        return len(self._states) - 1

    def _build(self, node: _Node, following: int) -> int:
        """Add the states of a part that is followed by a state; return its first state."""
        match node:
            case _Character(matches=matches):
                return self._add("character", matches, following)
            case _Assertion(kind=kind):
                return self._add("assertion", kind, following)
            case _Sequence(parts=parts):
                for part in reversed(parts):
                    following = self._build(part, following)
                return following
            case _Alternatives(parts=parts):
                return self._add("split", None, *(self._build(part, following) for part in parts))
            case _Repeat(part=part, low=low, high=high):
                return self._build_repeat(part, low, high, following)

    def _build_repeat(self, part: _Node, low: int, high: int | None, following: int) -> int:
        first = following
        if high is None:
            loop = self._add("split", None, following)
            again = self._build(part, loop)
            self._states[loop] = _NfaState("split", None, (again, following))
            first = loop
        else:
            for _ in range(high - low):
                first = self._add("split", None, self._build(part, first), following)
        for _ in range(low):
            size = len(self._states)
            first = self._build(part, first)
            if (
                len(self._states) == size
            ):  # nested repetitions of nothing would never reach the limit of states
                raise PatternError("nothing to repeat", 0, hint="remove the repetition of an empty group")
        return first


def _build_simple_search(tree: _Node, flags: str) -> Callable[[str], Any] | None:
    """Return the search function of `re`, which is ten times as fast, if the pattern has no loops; else None.

    Loops at the ends of a pattern do not count: `is \\d+` is found wherever `is \\d` is.
    """
    tree = _strip_loops(_strip_loops(tree, 0), -1)
    paths = _count_paths(tree)
    if paths is None or paths > _MAX_SIMPLE_PATHS:
        return None
    letters = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}
    options = re.NOFLAG
    for flag in set(flags):
        options |= letters[flag]
    return re.compile(_write_source(tree), options).search


def _escape(char: str) -> str:
    return f"\\U{ord(char):08x}"


def _strip_loops(node: _Node, end: int) -> _Node:
    """Replace a loop at an end of a pattern by its smallest number of repetitions."""
    match node:
        case _Sequence(parts=parts):
            while parts:
                inner = _strip_loops(parts[end], end)
                rest = parts[1:] if end == 0 else parts[:-1]
                if inner != _Sequence(()):
                    return _Sequence((inner, *rest) if end == 0 else (*rest, inner))
                parts = rest
            return _Sequence(())
        case _Repeat(part=part, low=low, high=None):
            return _Sequence((part,) * low)
        case _:
            return node


def _is_anchored(node: _Node) -> bool:
    """Whether a pattern can match only at the start of a text."""
    match node:
        case _Assertion(kind=kind):
            return kind == "start"
        case _Sequence(parts=parts):
            return bool(parts) and _is_anchored(parts[0])
        case _Alternatives(parts=parts):
            return all(map(_is_anchored, parts))
        case _Repeat(part=part, low=low):
            return low > 0 and _is_anchored(part)
        case _:
            return False


def _count_paths(node: _Node) -> int | None:
    """Return the number of ways through a pattern; None if there are too many."""
    match node:
        case _Character():
            return 1
        case _Assertion():
            return 1
        case _Sequence(parts=parts) | _Alternatives(parts=parts):
            total = 1 if isinstance(node, _Sequence) else 0
            for part in parts:
                paths = _count_paths(part)
                if paths is None:
                    return None
                total = total * paths if isinstance(node, _Sequence) else total + paths
                if total > _MAX_SIMPLE_PATHS:
                    return None
            return total
        case _Repeat(part=part, low=low, high=high):
            paths = _count_paths(part)
            if paths is None or high is None or high > _MAX_SIMPLE_PATHS:
                return None
            total = 0
            for count in range(low, high + 1):
                total += paths**count
                if total > _MAX_SIMPLE_PATHS:
                    return None
            return total


def _write_source(node: _Node) -> str:
    match node:
        case _Character(source=source) | _Assertion(source=source):
            return source
        case _Sequence(parts=parts):
            return "".join(f"(?:{_write_source(part)})" for part in parts)
        case _Alternatives(parts=parts):
            return "|".join(_write_source(part) for part in parts)
        case _Repeat(part=part, low=low, high=high):
            return f"(?:{_write_source(part)}){{{low},{'' if high is None else high}}}"


def _classify(char: str) -> int:
    if char == "\n":
        return _NEWLINE
    return _WORD if char.isalnum() or char == "_" else _OTHER


def _holds(kind: str, before: int, after: int) -> bool:
    match kind:
        case "start":
            return before == _START
        case "end":
            return after == _END
        case "text end":
            return after in (_END, _FINAL_NEWLINE)
        case "line start":
            return before in (_START, _NEWLINE)
        case "line end":
            return after in (_END, _NEWLINE, _FINAL_NEWLINE)
    boundary = (before == _WORD) != (after == _WORD)
    return boundary == (kind == "word boundary")


def _find_required_literals(tree: _Node) -> tuple[str, ...]:
    """Return the runs of ASCII letters and digits that every match contains, in lower case, the longest first."""
    found: list[str] = []

    def visit(node: _Node, run: str) -> str:
        match node:
            case _Character(literal=literal) if literal.isascii() and literal.isalnum():
                return run + literal
            case _Sequence(parts=parts):
                for part in parts:
                    run = visit(part, run)
                return run
            case _Assertion():
                return run
            case _Repeat(part=part, low=low) if low >= 1:
                found.append(run)
                found.append(visit(part, ""))
                return ""
            case _:
                found.append(run)
                return ""

    found.append(visit(tree, ""))
    return tuple(sorted({run.lower() for run in found if run}, key=lambda run: (-len(run), run)))
