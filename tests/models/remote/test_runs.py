"""Whole runs over a server: what the plan refuses, what the run keeps, who judges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.making import write_choices, write_task
from tests.models.remote.embedded_server import ALL, EmbeddedServer, serving

import assay
from assay.core.errors import AssayError, CannotAnswer, UserMistake


def run(folder: Path, server_url: str, task: Path, model: str = "openai", **options: Any) -> Any:
    return assay.run(
        model=model,
        model_args={"model": "embedded", "base_url": server_url, **options.pop("model_args", {})},
        tasks=[str(task)],
        output_path=str(folder / "out"),
        **options,
    )


def test_a_task_the_server_cannot_answer_is_refused_in_the_plan(
    tmp_path: Path, server: EmbeddedServer
) -> None:
    before = server.calls["/v1/chat/completions"]
    with pytest.raises(CannotAnswer, match="does not do likelihood"):
        run(tmp_path, server.url, write_choices(tmp_path))
    assert server.calls["/v1/chat/completions"] - before <= 6, "nothing but the probe"
    assert not (tmp_path / "out").exists()


def test_likelihoods_over_completions_give_the_scores_of_the_model_itself(
    tmp_path: Path, server: EmbeddedServer
) -> None:
    task = write_choices(tmp_path, rows=12)
    there = run(tmp_path, server.url, task, model="local-completions")
    here = assay.run(model="embedded", tasks=[str(task)], output_path=str(tmp_path / "here"))
    assert [one.value for one in there.estimates] == [one.value for one in here.estimates]


def test_what_was_seen_of_the_server_is_kept_with_the_run(tmp_path: Path, server: EmbeddedServer) -> None:
    finished = run(tmp_path, server.url, write_task(tmp_path))
    manifest = json.loads((finished.folder / "manifest.json").read_text())
    assert manifest["model"]["server"]["model"] == "embedded-of-the-server"
    assert manifest["model"]["server"]["system_fingerprint"] == "fp-1"
    assert manifest["model"]["identity"]["base_url"] == server.url


def test_a_finished_run_is_shown_when_the_server_is_gone(tmp_path: Path) -> None:
    task = write_task(tmp_path)
    with serving() as server:
        url = server.url
        first = run(tmp_path, url, task)
    again = run(tmp_path, url, task, model_args={"max_retries": 0})
    assert again.folder == first.folder
    with pytest.raises(AssayError, match="nobody answers"):
        run(tmp_path, url, task, model_args={"max_retries": 0}, gen_kwargs={"max_gen_toks": 3})


def test_a_wrong_key_ends_the_run_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-the-right-one")
    with serving(key="sk-right") as server, pytest.raises(UserMistake) as raised:
        run(tmp_path, server.url, write_task(tmp_path))
    assert raised.value.exit_code == 2 and "OPENAI_API_KEY" in raised.value.hint
    assert "sk-not-the-right-one" not in str(raised.value)


def test_a_server_can_be_the_judge(tmp_path: Path) -> None:
    judged = {"metric": "good", "judge": {"kind": "binary"}}
    task = write_task(tmp_path, metric_list=[judged])
    with serving(knows=ALL) as server:
        finished = assay.run(
            model="embedded",
            tasks=[str(task)],
            judge=[f"openai,model=embedded,base_url={server.url}"],
            output_path=str(tmp_path / "out"),
            rpm=60_000,
        )
        assert server.calls["/v1/chat/completions"] >= 6
    (estimate,) = finished.estimates
    assert estimate.scored + estimate.unscored == 6
