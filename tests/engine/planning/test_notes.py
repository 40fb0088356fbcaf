"""What a plan says before anything is asked; notes on one part of the engine are tested with that part."""

from __future__ import annotations

from pathlib import Path

from tests.making import make_model, planned, write_choices


def test_choices_that_look_like_templates_are_named(workspace: Path) -> None:
    path = write_choices(workspace, doc_to_choice=["{{no}}", "yes"])
    (note,) = planned(make_model(), tasks=[str(path)]).notes
    assert "not rendered as templates" in note and "`assay check`" in note


def test_a_template_that_contains_the_choices_gives_no_note(workspace: Path) -> None:
    path = write_choices(workspace, doc_to_choice="{{['no', 'yes']}}")
    assert not planned(make_model(), tasks=[str(path)]).notes
