"""Stop strings are detected exactly, also across token boundaries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.models.tokens import StopStringDetector, cut_at_stops, split_thinking


@pytest.mark.parametrize(
    ("text", "stops", "expected"),
    [
        ("yes\nno", ["\n"], "yes"),
        ("yes", ["\n"], "yes"),
        ("yes", [""], "yes"),
        ("a END\nb", ["END\n", "\n"], "a "),
        ("a END\nb", ["\n", "END\n"], "a END"),  # in order, as in lm-eval
        ("\nyes", ["\n"], ""),
    ],
)
def test_text_is_cut_at_the_first_stop(text: str, stops: list[str], expected: str) -> None:
    assert cut_at_stops(text, stops) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hm</think>\n\nyes", ("hm", "yes")),
        ("a</think>b</think> c", ("a</think>b", "c")),
        (" yes", (None, "yes")),
    ],
)
def test_reasoning_ends_at_the_last_end_mark(text: str, expected: tuple[str | None, str]) -> None:
    assert split_thinking(text, "</think>") == expected


def decode(tokens: list[int]) -> str:
    """Decode tokens of up to three bytes each, which can split characters anywhere."""
    pieces = [token.to_bytes(3, "big").lstrip(b"\0") for token in tokens]
    return b"".join(pieces).decode("utf-8", "replace")


def split_into_tokens(text: str, cuts: list[int]) -> list[int]:
    content, found = text.encode(), []
    sizes = iter(cuts)
    while content:
        size = next(sizes, 1)
        found.append(int.from_bytes(content[:size], "big"))
        content = content[size:]
    return found


@given(
    st.text("ab\nß€🙂", max_size=20),
    st.lists(st.text("ab\nß€🙂", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.integers(1, 3), max_size=60),
)
def test_a_stop_string_is_detected_with_the_token_that_completes_it(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    tokens = split_into_tokens(text, cuts)
    detector = StopStringDetector(stops, decode)
    detected = next((count for count, token in enumerate(tokens, 1) if detector.add_token(token)), None)
    texts = [decode(tokens[:count]) for count in range(len(tokens) + 1)]
    complete = next(
        (
            count
            for count, known in enumerate(texts)
            if not known.endswith("\ufffd") and any(stop in known for stop in stops)
        ),
        None,
    )
    if (
        complete is not None
    ):  # an incomplete character after the stop string may delay the detection up to there
        assert detected is not None and detected <= complete
    if detected is not None:
        assert any(stop in texts[detected] for stop in stops)


def test_stop_strings_apply_only_after_the_reasoning() -> None:
    detector = StopStringDetector(["\n"], decode, after="</t>")
    detected = [detector.add_token(token) for token in split_into_tokens("a\nb</t>\nc", [2] * 9)]
    assert detected.index(True) == 3


def test_a_detector_without_stop_strings_never_stops() -> None:
    assert not any(
        StopStringDetector(["", ""], decode).add_token(token) for token in split_into_tokens("a\nb", [])
    )
