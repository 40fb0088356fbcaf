"""The sample documents of a report."""

from __future__ import annotations

from assay.viewer.report.documents import ReportPart


def test_a_long_prompt_is_collapsed_before_its_question() -> None:
    from assay.viewer.report.documents import build_text_part

    part = build_text_part("example\n" * 500 + "\nThe question?")
    assert isinstance(part, ReportPart)
    assert part.head is not None
    assert part.text.endswith("The question?")
    assert len(part.text) < 2000
