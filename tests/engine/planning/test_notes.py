"""Tests of the notes of a plan; notes of one part of the engine are tested with that part."""

from __future__ import annotations

from pathlib import Path

from tests.making import make_model, plan_run, write_choices


def test_choices_that_look_like_templates_are_named(workspace: Path) -> None:
    path = write_choices(workspace, doc_to_choice=["{{no}}", "yes"])
    (note,) = plan_run(make_model(), tasks=[str(path)]).notes
    assert "not rendered as templates" in note and "`assay check`" in note


def test_a_template_that_contains_the_choices_gives_no_note(workspace: Path) -> None:
    path = write_choices(workspace, doc_to_choice="{{['no', 'yes']}}")
    assert not plan_run(make_model(), tasks=[str(path)]).notes
