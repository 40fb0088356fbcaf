"""A replicated model is an ordinary model. Replicas run in this process; tests/flows uses Ray."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import pickle
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.cli.app import run_command_line
from assay.core.errors import InvalidOption
from assay.core.installation import format_install_command
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Request, Settings
from assay.core.records.responses import Outcome
from assay.models.dummy import DummyModel
from assay.models.embedded import EmbeddedModel
from assay.models.replicas import ReplicaConfig, ReplicatedModel
from assay.models.replicas.cluster import capture_environment
from assay.models.replicas.dispatcher import ReplicaDispatcher
from assay.models.replicas.serialization import build_media_key, load_payload, pack_requests, unpack_report
from assay.models.replicas.worker import ReplicaSpec, ReplicaWorker
from assay.testing import MODEL_CHECKS


class NearReplica:
    """A worker in this process. Between two calls, the event loop turns several times, as with Ray."""

    def __init__(self, turns: int = 0) -> None:
        self.turns = turns
        self.busy_s, self.numbers = 0.0, itertools.count()
        self.worker = ReplicaWorker(capture_environment(), fetch=lambda payload: payload)

    async def answer(self, requests: Sequence[Request]) -> AsyncIterator[Sequence[Outcome]]:
        data, media = pack_requests(requests)
        payloads = {build_media_key(part): load_payload(part) for part in media}
        number = next(self.numbers)
        report = unpack_report(await self.worker.answer(number, data, payloads))
        while True:
            self.busy_s = report.busy_s
            yield report.outcomes
            if report.error is not None:
                raise report.error
            if not report.more:
                return
            for _ in range(self.turns):
                await asyncio.sleep(0)
            report = unpack_report(await self.worker.more(number))

    async def release(self) -> None:
        await self.worker.close()


class NearModel(ReplicatedModel):
    """Replicas in this process."""

    async def open(self) -> None:
        recipe = ReplicaSpec(
            make_model=self._make,
            identity=await self.identify(),
            environment=capture_environment(),
            concurrency=1,
        )

        async def hire() -> NearReplica:
            replica = NearReplica()
            assert await replica.worker.open(pickle.dumps(recipe)) is None
            return replica

        self._dispatcher = ReplicaDispatcher(hire, self._limits)
        await self._dispatcher.open()


@pytest.fixture(autouse=True)
def _as_if_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here starts Ray."""
    monkeypatch.setattr("assay.models.replicas.model.require_ray", lambda where: None)


@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
def test_a_replicated_model_fulfils_the_contract(check: Callable[..., None]) -> None:
    check(lambda: NearModel(EmbeddedModel(), EmbeddedModel, ReplicaConfig(replicas=2)))


class BlockingModel(DummyModel):
    """Computes in the event loop, as a model without threads of its own does."""

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        async for outcome in super().answer(window):
            time.sleep(0.03)
            yield outcome


@pytest.mark.parametrize("turns", [0, 20])
def test_a_model_that_blocks_the_event_loop_reports_its_answers_meanwhile(turns: int) -> None:
    async def work() -> list[int]:
        replica = NearReplica(turns)
        model = BlockingModel()
        spec = ReplicaSpec(
            make_model=BlockingModel,
            identity=await model.identify(),
            environment=capture_environment(),
            concurrency=1,
        )
        assert await replica.worker.open(pickle.dumps(spec)) is None
        settings = Settings({"max_gen_toks": 2})
        requests = [
            Generate(task="t", document=n, prompt=Prompt.of_text(str(n)), settings=settings)
            for n in range(24)
        ]
        return [len(outcomes) async for outcomes in replica.answer(requests)]

    groups = asyncio.run(work())
    assert sum(groups) == 24
    assert len(groups) >= 3 and max(groups) <= 12


def test_traits_scale_with_the_number_of_replicas() -> None:
    model, alone = ReplicatedModel(DummyModel(), DummyModel, ReplicaConfig(replicas=3)), DummyModel()
    assert model.traits.abilities == alone.traits.abilities
    assert (model.traits.window, model.traits.in_flight) == (4 * 64, 6), "cut up where the model is slow"
    assert model.name == "dummy"
    assert asyncio.run(model.identify()) == asyncio.run(alone.identify())


def test_the_number_of_requests_in_flight_is_limited() -> None:
    def in_flight(replicas: int) -> int:
        traits = ReplicatedModel(DummyModel(window=512), DummyModel, ReplicaConfig(replicas=replicas)).traits
        return traits.window * traits.in_flight

    assert in_flight(256) == in_flight(1024) == 2**18


@pytest.mark.parametrize(
    ("model", "options", "what"),
    [
        (
            "openai",
            {"model_args": {"model": "m", "base_url": "http://127.0.0.1:9/v1"}},
            "is remote and already answers",
        ),
        ("oracle", {}, "cannot have replicas"),
        ("embedded", {"ray": "ray://head:10001"}, "client server"),
        ("embedded", {"replica_resources": {"gpu": "lots"}}, "invalid amount"),
    ],
)
def test_models_that_cannot_be_replicated_are_rejected_in_the_plan(
    workspace: Path, model: str, options: Mapping[str, Any], what: str
) -> None:
    import assay

    with pytest.raises(InvalidOption, match=what):
        assay.plan(model=model, tasks=["quickstart_facts"], replicas=2, **options)


@pytest.mark.parametrize(
    ("model", "arguments"), [("dummy", {}), ("openai", {"model": "m", "base_url": "http://127.0.0.1:9/v1"})]
)
def test_resources_without_replicas_are_rejected_in_the_plan(
    workspace: Path, model: str, arguments: Mapping[str, Any]
) -> None:
    import assay

    with pytest.raises(InvalidOption, match="`--replica_resources` has no effect"):
        assay.plan(
            model=model, model_args=arguments, tasks=["quickstart_facts"], replica_resources={"cpu": 1}
        )


def test_without_ray_the_error_says_how_to_install_it(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(workspace)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "ray" else find(name, *more)
    )
    for flags in (["--replicas", "2"], ["--ray", "auto"]):
        assert run_command_line(["run", "--tasks", "quickstart_facts", *flags]) == 2
        said = capsys.readouterr().err
        assert f"`{flags[0]}` needs the package `ray`" in said and format_install_command("ray") in said
        assert "Traceback" not in said


def test_without_replicas_ray_is_not_required(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import assay

    monkeypatch.setattr("assay.models.replicas.cluster.require_ray", lambda where: pytest.fail("not needed"))
    assert assay.plan(model="dummy", tasks=["quickstart_facts"], replicas=1).model.name == "dummy"
