"""Patterns match what `re` matches, in time linear in the text."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.store.filters.patterns import PatternError, PatternTooSlow, compile_pattern

_FLAGS = {"": re.NOFLAG, "i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}
_PARTS = st.sampled_from(
    [
        "a",
        "b",
        "c",
        ".",
        r"\d",
        "[ab]",
        "[^a]",
        "[a-c1]",
        r"\w",
        r"\W",
        r"\b",
        r"\B",
        "^",
        "$",
        r"\s",
        "1",
        " ",
    ]
)
_COUNTS = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,1}", "{,2}", "{1,}", "*?", "+?"])
_PATTERNS = st.recursive(
    _PARTS,
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("({}){}".format, inner, _COUNTS),
    ),
    max_leaves=8,
)


@given(_PATTERNS, st.sampled_from(sorted(_FLAGS)), st.text("abcA1 \n", max_size=9))
def test_matches_what_re_matches(pattern: str, flag: str, text: str) -> None:
    expected = re.compile(pattern, _FLAGS[flag]).search(text) is not None
    assert compile_pattern(pattern, flag).matches(text) == expected


@given(_PATTERNS, st.text("abc1 ", max_size=9))
def test_spans_are_matches(pattern: str, text: str) -> None:
    for start, end in compile_pattern(pattern).find_spans(text):
        found = re.compile(pattern).match(text, start)
        assert found is not None
        assert start < end


@given(_PATTERNS, st.text("abcA1 \n", max_size=9))
def test_every_match_contains_the_required_literals(pattern: str, text: str) -> None:
    compiled = compile_pattern(pattern, "i")
    if re.compile(pattern, re.IGNORECASE).search(text):
        assert all(literal in text.lower() for literal in compiled.literals)


def test_the_required_literals_are_found() -> None:
    assert compile_pattern(r"(The )?river \w+ (deep)+ sto(ne|p)").literals == ("river", "deep", "sto")
    assert compile_pattern("abc|d").literals == ()


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a+)+b", "a" * 20_000),
        ("(a|a)*b", "a" * 20_000),
        ("(a|aa)+$", "a" * 20_000 + "b"),
        (".*.*.*x", "y" * 20_000),
        (r"\d+x", "1" * 20_000),
        ("(a?){30}a{30}b", "a" * 30),
    ],
)
def test_patterns_that_hang_a_backtracking_engine_end(pattern: str, text: str) -> None:
    assert compile_pattern(pattern).matches(text) is False


def test_a_pattern_with_too_many_state_sets_is_stopped() -> None:
    text = "".join(random.Random(0).choices("ab", k=50_000))
    pattern = compile_pattern("(a|b)*a(a|b){120}c|(b|a)*b(b|a){120}d")
    with pytest.raises(PatternTooSlow, match="takes too long"):
        pattern.matches(text + "c")


@pytest.mark.parametrize(
    ("pattern", "what", "position"),
    [
        ("(a", "this `(` has no `)`", 0),
        ("a)", "there is no `(` for this `)`", 1),
        ("ab[c", "this `[` has no `]`", 2),
        ("*a", "nothing to repeat before `*`", 0),
        ("a**", "two quantifiers in a row", 2),
        (r"(a)\1", "back-references are not supported", 3),
        ("(?=a)", "lookaround is not supported", 0),
        ("(?<!a)b", "lookaround is not supported", 0),
        ("a\\", "the pattern ends with a backslash", 1),
        (r"\q", r"unknown escape `\q`", 0),
        ("[z-a]", "invalid range in a character class", 2),
        ("a{3,2}", "the range of repetitions is reversed", 1),
        ("(a{100}){100}", "the pattern is too large", 0),
        ("a{2000}", "at most 1000 repetitions are supported", 1),
        ("(" * 80 + ")" * 80, "the pattern is nested too deeply", 51),
    ],
)
def test_invalid_patterns_say_what_is_wrong_and_where(pattern: str, what: str, position: int) -> None:
    with pytest.raises(PatternError) as caught:
        compile_pattern(pattern)
    assert (caught.value.what, caught.value.position) == (what, position)


def test_spans_for_highlighting() -> None:
    assert compile_pattern(r"\d+").find_spans("a 12 b 345") == [(2, 4), (7, 10)]
    assert compile_pattern("(?i)the").find_spans("The other") == [(0, 3), (5, 8)]
    assert compile_pattern("a*").find_spans("bbb") == []


@pytest.mark.parametrize(
    "pattern", ["((((){200}){200}){200}){200}x", "((((a{0}){200}){200}){200}){200}x", "(){999,}"]
)
def test_repetitions_of_nothing_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="nothing to repeat"):
        compile_pattern(pattern)


def test_many_loops_at_the_end_are_accepted() -> None:
    assert compile_pattern("b" + "a*" * 300).matches("xb")


def test_the_limit_of_work_does_not_count_texts() -> None:
    pattern = compile_pattern("a.*b")
    assert not any(pattern.matches("a c d") for _ in range(700_000))


def test_marking_a_slow_pattern_ends() -> None:
    text = "many words without the mark that follows them " * 200
    assert compile_pattern(r"[a-z ]+\?").find_spans(text) == []
