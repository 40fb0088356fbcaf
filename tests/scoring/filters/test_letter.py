"""Which letter an answer names: clear ones are found, everything else is no answer."""

from __future__ import annotations

import pytest

from assay.scoring.filters.letter import Letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        (" b ", "B"),
        ("(B)", "B"),
        ("**B**", "B"),
        ("B.", "B"),
        ("B. Paris", "B"),
        ("B) Paris", "B"),
        ("**B. Paris**", "B"),
        ("B: because it is", "B"),
        ("B\n\nQuestion: and next?", "B"),
        ("[B]", "B"),
        ("Answer: B", "B"),
        ("The answer is B.", "B"),
        ("The correct answer is (B) Paris, not Rome.", "B"),
        ("So the best choice is **B**", "B"),
        (r"It follows that \boxed{B}", "B"),
        (r"\boxed{\text{B}}", "B"),
        ("<think>A? No, C.</think>B", "B"),
        ("The answer is B. I repeat, the answer is B.", "B"),
        ("", None),
        ("Paris", None),
        ("A or B", None),
        ("A man walks in", None),
        ("I think so", None),
        ("The answer is a matter of taste", None),
        ("The answer is A. No, the answer is B.", None),
        ("E", None),
        ("E. none of them", None),
        ("Ä", None),
        ("1", None),
    ],
)
def test_the_letter_of_an_answer(text: str, letter: str | None) -> None:
    ((found,),) = Letter(count=4).apply([[text]], [{}])
    assert found == (letter or "[invalid]")


def test_how_many_choices_there_are_is_a_matter_of_the_document() -> None:
    found = Letter(count=lambda fields: fields["n"]).apply([["C"], ["C"]], [{"n": 2}, {"n": 3}])
    assert found == [["[invalid]"], ["C"]]
