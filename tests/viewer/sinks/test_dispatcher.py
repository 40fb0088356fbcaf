from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_task

import assay
from assay.core.errors import InvalidOption, MissingPackage, UnknownName
from assay.viewer.sinks import SINKS, dispatcher
from assay.viewer.sinks.dispatcher import open_sinks


@pytest.fixture
def sums(workspace: Path) -> str:
    return str(write_task(workspace))


def events(path: str = "events.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def offer(monkeypatch: pytest.MonkeyPatch, name: str, sink: Any) -> None:
    monkeypatch.setitem(SINKS._items, name, lambda **arguments: sink)


def test_a_run_reports_its_start_and_its_end_with_results(sums: str) -> None:
    run = assay.run(model=make_model(), tasks=[sums], sink=["jsonl,path=events.jsonl"])
    told = events()
    assert [one["event"] for one in told if one["event"] != "progress"] == [
        "run started",
        "task ended",
        "run ended",
    ]
    assert told[0]["tasks"] == {"sums": 6} and told[0]["run_id"] == run.id
    end = told[-1]
    assert (end["state"], end["results"]["results"]["sums"]["exact_match,none"]) == ("finished", 1.0)
    assert end["numbers"][0]["scored"] == 6 and end["outcomes"] == {"sums": {"scored": 6}}


def test_a_finished_run_can_be_reported_again(sums: str) -> None:
    assay.run(model=make_model(), tasks=[sums]).close()
    assay.run(model=make_model(), tasks=[sums], sink=["jsonl,path=events.jsonl"]).close()
    assert events()[-1]["results"]["results"]["sums"]["exact_match,none"] == 1.0


def test_progress_is_reported_during_the_run(sums: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "PROGRESS_INTERVAL_S", 0.01)
    assay.run(
        model="dummy", model_args={"latency_s": 0.05}, tasks=[sums], sink=["jsonl,path=events.jsonl"]
    ).close()
    done = [one["done"] for one in events() if one["event"] == "progress"]
    assert len(done) > 2 and done == sorted(done) and done[-1] == 6


class Broken:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def emit(self, event: str, facts: Mapping[str, Any]) -> None:
        self.heard.append(event)
        raise ConnectionError("no such service; api_key=sk-very-secret-0123456789abcdef")


def test_a_sink_that_fails_never_stops_a_run(
    sums: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken()
    offer(monkeypatch, "broken", broken)
    run = assay.run(model=make_model(), tasks=[sums], sink=["broken", "jsonl,path=events.jsonl"])
    assert run.results["sums"]["exact_match,none"] == 1.0
    assert broken.heard == ["run started"]
    assert events()[-1]["state"] == "finished"
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "the sink `broken` failed and is disabled"
    ]


class Slow:
    def __init__(self) -> None:
        self.free = threading.Event()

    def emit(self, event: str, facts: Mapping[str, Any]) -> None:
        self.free.wait(30)


def test_a_hanging_sink_delays_the_end_only_for_the_timeout(
    sums: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow()
    offer(monkeypatch, "slow", slow)
    monkeypatch.setattr(dispatcher, "CLOSE_TIMEOUT_S", 0.2)
    began = time.monotonic()
    run = assay.run(model=make_model(), tasks=[sums], sink=["slow"])
    slow.free.set()
    assert run.finished and time.monotonic() - began < 20


def test_a_failed_run_reports_the_reason(sums: str) -> None:
    model = make_model()

    async def open_it() -> None:
        raise InvalidOption("the weights are not there")

    model.open = open_it  # type: ignore[method-assign]
    with pytest.raises(InvalidOption):
        assay.run(model=model, tasks=[sums], sink=["jsonl,path=events.jsonl"])
    end = events()[-1]
    assert (end["state"], end["why"], end["numbers"]) == ("failed", "the weights are not there", [])


def test_secrets_are_not_reported(sums: str) -> None:
    arguments = {"text": "4", "api_key": "sk-planted-0123456789abcdef"}
    with pytest.raises(InvalidOption):  # the dummy takes no key; what is told was told before
        assay.run(model="dummy", model_args=arguments, tasks=[sums], sink=["jsonl,path=events.jsonl"])
    assay.run(
        model="dummy",
        tasks=[sums],
        metadata={"api_key": "sk-planted-0123456789abcdef"},
        sink=["jsonl,path=events.jsonl"],
    ).close()
    assert "sk-planted" not in Path("events.jsonl").read_text()


@pytest.mark.parametrize(
    ("word", "error", "what"),
    [
        ("nobody", UnknownName, "no sink is called `nobody`"),
        ("jsonl", InvalidOption, "needs a file"),
        ("jsonl,path=x,colour=red", InvalidOption, "colour"),
        ("hub,repo=mine", InvalidOption, "needs a repository"),
        ("otel,exporter=pigeon", InvalidOption, "unknown exporter `pigeon`"),
    ],
)
def test_invalid_sinks_are_rejected_before_the_first_request(
    word: str, error: type[Exception], what: str
) -> None:
    with pytest.raises(error, match=what):
        open_sinks([word])


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> Any:
        raise ImportError(f"No module named {module!r}")

    monkeypatch.setattr("assay.viewer.sinks.tracker_metrics.import_module", missing)
    with pytest.raises(MissingPackage, match="the sink needs the package"):
        open_sinks(["otel"])


def test_a_missing_plugin_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.core.registry.find_entry_points", lambda group: ())
    for name in ("mlflow", "trackio", "wandb"):  # an earlier test may have loaded the plugin
        monkeypatch.delitem(SINKS._items, name, raising=False)
    with pytest.raises(MissingPackage, match="is part of the plugin `assay-plugin-trackers`") as caught:
        open_sinks(["wandb"])
    assert "trackers" in caught.value.hint
    assert SINKS.missing_plugins() == {"assay-plugin-trackers": ["mlflow", "trackio", "wandb"]}
