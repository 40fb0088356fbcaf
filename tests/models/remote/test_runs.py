"""Runs with a remote model: errors in the plan, stored data, remote judges."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.making import write_choices, write_task
from tests.models.remote.embedded_server import ALL, EmbeddedServer, serving

import assay
from assay.api import verify
from assay.core.errors import AssayError, UnsupportedRequest, UserError
from assay.models.remote.openai import OpenAIModel
from assay.viewer.terminal.results_table import format_results


def run(folder: Path, server_url: str, task: Path, model: str = "openai", **options: Any) -> Any:
    return assay.run(
        model=model,
        model_args={"model": "embedded", "base_url": server_url, **options.pop("model_args", {})},
        tasks=[str(task)],
        output_path=str(folder / "out"),
        **options,
    )


def test_a_task_the_server_cannot_answer_is_rejected_in_the_plan(
    tmp_path: Path, server: EmbeddedServer
) -> None:
    before = server.calls["/v1/chat/completions"]
    with pytest.raises(UnsupportedRequest, match="does not support likelihood"):
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


def test_server_capabilities_are_stored_with_the_run(tmp_path: Path, server: EmbeddedServer) -> None:
    finished = run(tmp_path, server.url, write_task(tmp_path))
    manifest = json.loads((finished.folder / "manifest.json").read_text())
    assert manifest["model"]["server"]["model"] == "embedded-of-the-server"
    assert manifest["model"]["server"]["system_fingerprint"] == "fp-1"
    assert manifest["model"]["identity"]["base_url"] == server.url


def test_probe_calls_are_counted_with_the_requests(tmp_path: Path) -> None:
    metrics = [{"metric": "good", "judge": {"kind": "binary"}}, {"metric": "exact_match"}]
    with serving() as server, serving() as judges:
        judge = f"openai,model=embedded,base_url={judges.url}"
        done = run(tmp_path, server.url, write_task(tmp_path, metric_list=metrics), judge=[judge], limit=2)
    sent = [one.calls["/v1/chat/completions"] for one in (server, judges)]
    (name,) = done.judges
    probes = done.facts["probe_calls"]
    assert min(sent) >= 5
    assert probes == {"": sent[0] - 2, name: sent[1] - 2}
    table = format_results(done)
    assert f"2 requests and {probes['']} probe calls; " in table
    assert f"judge {name}: 2 requests and {probes[name]} probe calls" in table


def test_a_finished_run_is_shown_without_the_server(tmp_path: Path) -> None:
    task = write_task(tmp_path)
    with serving() as server:
        url = server.url
        first = run(tmp_path, url, task)
    again = run(tmp_path, url, task, model_args={"max_retries": 0})
    assert again.folder == first.folder
    with pytest.raises(AssayError, match="cannot reach"):
        run(tmp_path, url, task, model_args={"max_retries": 0}, gen_kwargs={"max_gen_toks": 3})


def test_a_wrong_key_stops_the_run_before_the_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-the-right-one")
    with serving(key="sk-right") as server, pytest.raises(UserError) as raised:
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


def test_a_server_that_changes_during_a_run_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = write_task(tmp_path)
    with serving() as server:
        asyncio.run(OpenAIModel(model="embedded", base_url=server.url).probe())
        server.replaced_after = sum(map(len, server.answers.values())) + 2
        finished = run(tmp_path, server.url, task, model_args={"num_concurrent": 1})
    names = finished.served[""]
    assert names == {"embedded-of-the-server (fp-1)": None, "embedded-of-the-server (fp-2)": 4}
    assert "now reports the identity embedded-of-the-server (fp-2)" in caplog.text
    (warning,) = [line for line in format_results(finished).splitlines() if line.startswith("warning:")]
    assert "changed during the run" in warning and "fp-2) for 4 answers" in warning
    kept = finished.journal.query("SELECT count(*) FROM answered WHERE details LIKE '%served%'")
    assert list(kept) == [(4,)], "the usual name is kept once, not with each answer"
    told = [
        request["served"]
        for record in finished.records("sums")
        for request in record["requests"]
        if "served" in request
    ]
    assert len(told) == 4
    assert verify(finished).warnings == (
        "the server of the model identified itself as embedded-of-the-server (fp-2) in 4 responses "
        "and as embedded-of-the-server (fp-1) in the others",
    )


def test_an_unchanged_server_is_not_reported(tmp_path: Path, server: EmbeddedServer) -> None:
    finished = run(tmp_path, server.url, write_task(tmp_path))
    assert finished.served == {"": {"embedded-of-the-server (fp-1)": None}}
    assert "warning" not in format_results(finished)


JUDGED = {"metric": "good", "judge": {"kind": "binary"}}


@pytest.mark.parametrize(
    ("judge", "variable"),
    [
        ("openai,model=gpt-4o-mini", "OPENAI_API_KEY"),
        ("anthropic,model=claude-haiku-4-5", "ANTHROPIC_API_KEY"),
        ("gemini,model=gemini-2.5-flash", "GEMINI_API_KEY"),
    ],
)
def test_a_judge_without_a_key_fails_in_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, judge: str, variable: str
) -> None:
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
    task = write_task(tmp_path, metric_list=[JUDGED])
    with pytest.raises(UserError, match="no API key") as raised:
        assay.plan(model="embedded", tasks=[str(task)], judge=[judge], output_path=str(tmp_path / "out"))
    assert variable in raised.value.hint and "judge" in raised.value.where
    assert not (tmp_path / "out").exists()


def test_the_plan_notes_an_unreachable_judge(tmp_path: Path) -> None:
    task = write_task(tmp_path, metric_list=[JUDGED])
    with serving() as server:
        url = server.url
    judge = f"openai,model=embedded,base_url={url},max_retries=0"
    options: dict[str, Any] = {"model": "embedded", "tasks": [str(task)], "judge": [judge]}
    plan = assay.plan(**options, output_path=str(tmp_path / "out"))
    (note,) = plan.notes
    assert note.startswith("the judge `embedded`: cannot reach") and url in note
    with pytest.raises(AssayError, match="cannot reach"):
        assay.run(**options, output_path=str(tmp_path / "out"))


def test_a_judge_with_a_wrong_key_fails_in_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-the-right-one")
    task = write_task(tmp_path, metric_list=[JUDGED])
    with serving(key="sk-right") as server:
        judge = f"openai,model=embedded,base_url={server.url}"
        with pytest.raises(UserError, match="authentication failed") as raised:
            assay.plan(model="embedded", tasks=[str(task)], judge=[judge], output_path=str(tmp_path / "out"))
    assert "judge" in raised.value.where and "sk-not-the-right-one" not in str(raised.value)
