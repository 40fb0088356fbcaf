"""The syntax of filter expressions: tokens, the syntax tree, the parser, and errors with their position.

    expression  = conjunction {"or" conjunction}
    conjunction = negation {"and" negation}
    negation    = "not" negation | "(" expression ")" | TEXT | condition
    condition   = name [operator value | ["not"] "in" "(" value {"," value} ")"]
    name        = (WORD | `ANY NAME`) ["[" part "]"]
    operator    = "=" | "!=" | "<" | "<=" | ">" | ">=" | "~" | "!~"
    value       = NUMBER | TEXT | WORD | /PATTERN/flags

The module knows neither runs nor documents: names are resolved later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from assay.core.errors import UserError
from assay.store.filters.patterns import Pattern, PatternError, compile_pattern

__all__ = [
    "MAX_EXPRESSION_LENGTH",
    "And",
    "Condition",
    "Expression",
    "FilterError",
    "Membership",
    "Name",
    "Not",
    "Or",
    "Search",
    "Token",
    "Value",
    "parse_expression",
    "quote_name",
    "quote_value",
    "split_tokens",
]

MAX_EXPRESSION_LENGTH = 4000
_MAX_DEPTH = 60
_KEYWORDS = ("and", "or", "not", "in")
_OPERATORS = ("<=", ">=", "!=", "!~", "==", "=", "<", ">", "~")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]|-\w)")
_WORD = re.compile(r"[^\W\d](?:[\w@%]|[-.:+/](?=\w))*")
_FLAGS = re.compile(r"[A-Za-z]*")

TokenKind = Literal["word", "name", "number", "text", "pattern", "operator", "punctuation", "end"]


class FilterError(UserError):
    """An invalid filter expression."""

    def __init__(
        self, what: str, *, where: str = "", hint: str = "", position: int = 0, length: int = 1
    ) -> None:
        super().__init__(what, where=where or f"column {position + 1}", hint=hint)
        self.position = position
        """Index of the first character that is wrong."""

        self.length = length

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.what, self.where, self.hint, self.position, self.length))

    def point_at(self, text: str, option: str = "--where") -> FilterError:
        """Return the error with the expression and a marker under the wrong part, for a terminal."""
        marked = f"{option}, column {self.position + 1}\n    {text}\n    {' ' * self.position}{'^' * max(1, self.length)}"
        return FilterError(
            self.what, where=marked, hint=self.hint, position=self.position, length=self.length
        )


def _rebuild(what: str, where: str, hint: str, position: int, length: int) -> FilterError:
    return FilterError(what, where=where, hint=hint, position=position, length=length)


@dataclass(frozen=True, slots=True)
class Token:
    """A part of an expression: its kind, its value, and its place in the text."""

    kind: TokenKind
    text: str
    """The value: the name without backticks, the text without quotation marks, the pattern without slashes."""

    start: int
    end: int
    flags: str = ""
    """Flags after a pattern."""

    closed: bool = True
    """Whether the closing quotation mark, backtick or slash is present."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A name, as in `exact_match[flexible-extract]`."""

    text: str
    part: str = ""
    """The text in brackets: a filter pipeline."""

    quoted: bool = False
    """Whether it is in backticks; it is then always a column of the documents."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value to compare with."""

    text: str
    number: float | None = None
    pattern: Pattern | None = None
    quoted: bool = False
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A comparison, or a name on its own (`truncated`), which has no operator."""

    name: Name
    operator: str = ""
    value: Value | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """`name in (value, …)`."""

    name: Name
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A text on its own: the words occur in the fields, the target or the responses."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """True if the operand is not."""

    operand: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class And:
    """True if all operands are."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Or:
    """True if an operand is."""

    operands: tuple[Expression, ...]


Expression = And | Or | Not | Condition | Membership | Search


def parse_expression(text: str) -> Expression | None:
    """Parse an expression; None for an empty one.

    >>> parse_expression("not truncated")
    Not(operand=Condition(name=Name(text='truncated', part='', quoted=False, start=4, end=13), operator='', value=None))

    Raises:
        FilterError: The expression is invalid.
    """
    if len(text) > MAX_EXPRESSION_LENGTH:
        raise FilterError(
            f"the expression is longer than {MAX_EXPRESSION_LENGTH} characters",
            position=MAX_EXPRESSION_LENGTH,
        )
    tokens = list(split_tokens(text))
    for token in tokens:
        if not token.closed:
            kind, mark = {
                "text": ("text", text[token.start]), "name": ("name", "`"), "pattern": ("pattern", "/"),
            }[token.kind]  # fmt: skip
            raise FilterError(
                f"the {kind} has no end",
                position=token.start,
                length=token.end - token.start,
                hint=f"close it with {mark}",
            )
    if tokens[0].kind == "end":
        return None
    parser = _Parser(tokens)
    found = parser.parse_alternatives(0)
    parser.expect_end()
    return found


def quote_value(text: str) -> str:
    """Return a text as a value of an expression: in quotation marks if it is not a plain word.

    >>> quote_value("Algebra"), quote_value('say "no"')
    ('Algebra', '"say \\\\"no\\\\""')
    """
    if _WORD.fullmatch(text) and text.lower() not in _KEYWORDS:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def quote_name(text: str) -> str:
    """Return a column name as it is written in an expression: in backticks if it is not a plain word."""
    plain = _WORD.fullmatch(text) and text.lower() not in _KEYWORDS
    return text if plain else f"`{text}`"


# --- tokens ------------------------------------------------------------------------------------------


def split_tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of an expression and an `end` token; also of an incomplete one.

    Raises:
        FilterError: A character cannot start a token.
    """
    at = 0
    last: Token | None = None
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        last = _read_token(text, at, last)
        yield last
        at = last.end
    yield Token("end", "", len(text), len(text))


def _read_token(text: str, at: int, last: Token | None) -> Token:
    first = text[at]
    if first in "\"'":
        return _read_quoted(text, at)
    if first == "`":
        end = text.find("`", at + 1)
        return (
            Token("name", text[at + 1 : end], at, end + 1)
            if end >= 0
            else Token("name", text[at + 1 :], at, len(text), closed=False)
        )
    if first == "/":
        return _read_pattern(text, at)
    for operator in _OPERATORS:
        if text.startswith(operator, at):
            return Token("operator", "=" if operator == "==" else operator, at, at + len(operator))
    if first in "()[],":
        return Token("punctuation", first, at, at + 1)
    if found := _NUMBER.match(text, at):
        return Token("number", found.group(), at, found.end())
    if found := _WORD.match(text, at):
        return Token("word", found.group(), at, found.end())
    hints = {"&": "write `and`", "|": "write `or`", "!": "write `not`", "“": 'use plain quotation marks: "'}
    hint = hints.get(first, "")
    if first.isdigit() or (first in "+-" and at + 1 < len(text)):
        hint = 'put a value that is not a plain number in quotation marks: "2024-01"'
    raise FilterError(f"unexpected character `{first}`", position=at, hint=hint)


def _read_quoted(text: str, at: int) -> Token:
    mark, parts, place = text[at], [], at + 1
    while place < len(text) and text[place] != mark:
        if text[place] == "\\" and place + 1 < len(text):
            escaped = text[place + 1]
            parts.append(
                {"n": "\n", "t": "\t"}.get(escaped, escaped if escaped in "\\\"'" else f"\\{escaped}")
            )
            place += 2
        else:
            parts.append(text[place])
            place += 1
    closed = place < len(text)
    return Token("text", "".join(parts), at, place + 1 if closed else place, closed=closed)


def _read_pattern(text: str, at: int) -> Token:
    place, in_class = at + 1, False
    while place < len(text) and (in_class or text[place] != "/"):
        if text[place] == "\\":
            place += 1
        elif text[place] == "[":
            in_class = True
        elif text[place] == "]":
            in_class = False
        place += 1
    if place >= len(text):
        return Token("pattern", text[at + 1 :], at, len(text), closed=False)
    flags = _FLAGS.match(text, place + 1)
    assert flags is not None
    return Token("pattern", text[at + 1 : place].replace("\\/", "/"), at, flags.end(), flags.group())


# --- parser ------------------------------------------------------------------------------------------


class _Parser:
    """A recursive descent parser."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _is_word(self, word: str) -> bool:
        return self._token.kind == "word" and self._token.text.lower() == word

    def _is_mark(self, mark: str) -> bool:
        return self._token.kind == "punctuation" and self._token.text == mark

    def _advance(self) -> Token:
        token = self._token
        self._at += 1
        return token

    def expect_end(self) -> None:
        """Raise an error if anything follows the expression."""
        token = self._token
        if token.kind == "end":
            return
        if self._is_mark(")"):
            raise _build_error(token, "there is no `(` for this `)`")
        raise _build_error(token, "`and` or `or` is missing", hint="write `and` between two conditions")

    def parse_alternatives(self, depth: int) -> Expression:
        """Parse operands joined by `or`."""
        operands = [self._parse_conjunction(depth)]
        while self._is_word("or"):
            self._advance()
            operands.append(self._parse_conjunction(depth))
        return operands[0] if len(operands) == 1 else Or(operands=tuple(operands))

    def _parse_conjunction(self, depth: int) -> Expression:
        operands = [self._parse_negation(depth)]
        while self._is_word("and"):
            self._advance()
            operands.append(self._parse_negation(depth))
        return operands[0] if len(operands) == 1 else And(operands=tuple(operands))

    def _parse_negation(self, depth: int) -> Expression:
        token = self._token
        if depth > _MAX_DEPTH:
            raise _build_error(token, "the expression is nested too deeply")
        if self._is_word("not"):
            self._advance()
            return Not(operand=self._parse_negation(depth + 1))
        if self._is_mark("("):
            self._advance()
            inside = self.parse_alternatives(depth + 1)
            if not self._is_mark(")"):
                if self._token.kind == "end":
                    raise _build_error(token, "this `(` has no `)`", hint="close it with )")
                raise _build_error(self._token, "`and`, `or` or `)` is missing")
            self._advance()
            return inside
        if token.kind == "text":
            self._advance()
            if self._token.kind == "operator":
                raise _build_error(
                    token,
                    "a condition starts with a name",
                    hint=f"write a column in backticks: `{token.text}`",
                )
            return Search(text=token.text)
        return self._parse_condition()

    def _parse_condition(self) -> Expression:
        token = self._token
        if token.kind == "end":
            raise _build_error(token, "the expression ends too early", hint="a condition is missing here")
        if token.kind not in ("word", "name") or (token.kind == "word" and token.text.lower() in _KEYWORDS):
            shown = "pattern" if token.kind == "pattern" else f"`{token.text}`"
            hint = "for example `score<1`" if token.kind != "pattern" else "for example answer~/[0-9]+/"
            raise _build_error(token, f"expected a condition, not {shown}", hint=hint)
        name = self._parse_name()
        if self._is_word("in"):
            self._advance()
            return Membership(name=name, values=self._parse_values())
        if self._is_word("not") and self._tokens[self._at + 1].text.lower() == "in":
            self._at += 2
            return Not(operand=Membership(name=name, values=self._parse_values()))
        if self._token.kind != "operator":
            return Condition(name=name)
        operator = self._advance()
        value = self._parse_value(operator)
        condition = Condition(name=name, operator=operator.text.removeprefix("!"), value=value)
        if operator.text in ("!=", "!~"):
            return Not(
                operand=Condition(name=name, operator="=" if operator.text == "!=" else "~", value=value)
            )
        return condition

    def _parse_name(self) -> Name:
        token = self._advance()
        part, end = "", token.end
        if self._is_mark("["):
            bracket = self._advance()
            inside = self._token
            if inside.kind not in ("word", "name", "text", "number"):
                raise _build_error(inside, "expected the name of a filter in the brackets")
            part = self._advance().text
            if not self._is_mark("]"):
                raise _build_error(bracket, "this `[` has no `]`", hint="close it with ]")
            end = self._advance().end
        return Name(text=token.text, part=part, quoted=token.kind == "name", start=token.start, end=end)

    def _parse_values(self) -> tuple[Value, ...]:
        if not self._is_mark("("):
            raise _build_error(self._token, "expected `(` after `in`", hint="for example `in (1, 2)`")
        opening = self._advance()
        values = [self._parse_value(None)]
        while self._is_mark(","):
            self._advance()
            values.append(self._parse_value(None))
        if not self._is_mark(")"):
            raise _build_error(opening, "this `(` has no `)`", hint="separate values with commas")
        self._advance()
        return tuple(values)

    def _parse_value(self, operator: Token | None) -> Value:
        token = self._token
        if token.kind == "end":
            raise _build_error(
                token, "a value is missing", hint='for example `=1`, `="text"` or `~/pattern/`'
            )
        if token.kind == "pattern":
            return self._parse_pattern(operator)
        if token.kind not in ("word", "number", "text", "name") or (
            token.kind == "word" and token.text.lower() in _KEYWORDS
        ):
            raise _build_error(token, f"expected a value, not `{token.text}`")
        self._advance()
        number = float(token.text) if token.kind == "number" else None
        return Value(
            text=token.text, number=number, quoted=token.kind == "text", start=token.start, end=token.end
        )

    def _parse_pattern(self, operator: Token | None) -> Value:
        token = self._advance()
        if operator is None or operator.text not in ("~", "!~"):
            raise _build_error(token, "a pattern follows `~` or `!~`", hint=f"write ~/{token.text}/")
        if unknown := [flag for flag in token.flags if flag not in "ims"]:
            raise FilterError(
                f"unknown flag `{unknown[0]}`",
                position=token.end - len(token.flags),
                length=len(token.flags),
                hint="i ignores case, m matches ^ and $ at lines, s lets . match line breaks",
            )
        try:
            pattern = compile_pattern(token.text, token.flags)
        except PatternError as error:
            raise FilterError(
                error.what, position=token.start + 1 + error.position, hint=error.hint
            ) from None
        return Value(text=token.text, pattern=pattern, quoted=True, start=token.start, end=token.end)


def _build_error(token: Token, what: str, hint: str = "") -> FilterError:
    return FilterError(what, position=token.start, length=max(1, token.end - token.start), hint=hint)
