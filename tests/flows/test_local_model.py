"""Runs with a transformers checkpoint: every kind of request, a named template, and a repeated run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.models.hf.tiny_checkpoints import tiny_checkpoint

import assay
from assay.core.errors import ErrorGroup, UserError

pytestmark = pytest.mark.torch


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "home"))
    return tmp_path


def run(folder: Path, **options: Any) -> assay.Run:
    pytest.importorskip("torch")
    given = {"tasks": ["quickstart"], "limit": 3, "output_path": str(folder), "batch_size": "auto", **options}
    return assay.run(model="hf", model_args={"pretrained": str(tiny_checkpoint())}, **given)


def test_a_checkpoint_answers_the_quickstart_and_a_repeated_run_uses_the_cache(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = ["quickstart_facts", "quickstart_stories"]  # truncated answers are not cached
    first = run(home / "one", tasks=tasks)
    assert set(first.results) >= set(tasks)
    from assay.models.hf.text.backend import TextBackend

    def never(self: Any) -> None:
        raise AssertionError("the weights were loaded again")

    monkeypatch.setattr(TextBackend, "load", never)
    assert run(home / "two", tasks=tasks, batch_size=2).results == first.results


def test_a_named_chat_template_reaches_the_model(home: Path) -> None:
    file = home / "short.jinja"
    file.write_text("{% for m in messages %}{{ m['content'] }}\n{% endfor %}")
    task = ["quickstart_addition"]
    plain = run(home / "one", tasks=task, apply_chat_template=True)
    named = run(home / "two", tasks=task, apply_chat_template=str(file))
    assert plain.facts["identity"] != named.facts["identity"]


def test_a_model_without_named_templates_is_an_error(home: Path) -> None:
    with pytest.raises(UserError, match="has no chat template called `rag`"):
        assay.run(
            tasks=["quickstart_addition"], limit=1, output_path=str(home / "one"), apply_chat_template="rag"
        )


def test_a_missing_checkpoint_is_an_error_before_the_first_request(home: Path) -> None:
    with pytest.raises((UserError, ErrorGroup), match="model folder not found"):
        assay.run(
            model="hf",
            model_args={"pretrained": str(home / "nowhere")},
            tasks=["quickstart_addition"],
            limit=1,
            output_path=str(home / "one"),
        )
