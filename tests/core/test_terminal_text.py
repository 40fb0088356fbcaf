from __future__ import annotations

import pytest

from assay.core.terminal_text import escape_control_characters


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b]0;owned\x07\x1b[2J", r"\x1b]0;owned\x07\x1b[2J"),
        ("half \ud83d", r"half \ud83d"),
        ("back\u202ewards", r"back\u202ewards"),
        ("naïve 東京 👍", "naïve 東京 👍"),
    ],
    ids=["plain", "escape sequences", "half characters", "direction marks", "every language"],
)
def test_what_a_terminal_would_obey_is_written_out(text: str, shown: str) -> None:
    assert escape_control_characters(text) == shown
