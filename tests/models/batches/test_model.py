"""Batch APIs: requests are submitted once, failed lines are failures and submitted again."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.models.hosted.services import KEY, Anthropic, OpenAIBatches, Service, serving
from tests.models.remote.asking import ask, chat, generate

from assay.core.errors import InvalidOption
from assay.core.records.messages import Prompt
from assay.core.records.requests import Likelihood
from assay.core.records.responses import Failure, Outcome, Response
from assay.models import make_model
from assay.store.batch_submissions import SubmissionLog


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "home"))
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, KEY)
    return tmp_path / "home"


@pytest.fixture(params=[OpenAIBatches, Anthropic], ids=["openai", "anthropic"])
def service(request: pytest.FixtureRequest) -> Iterator[Any]:
    with serving(request.param()) as running:
        yield running


@pytest.fixture
def openai() -> Iterator[OpenAIBatches]:
    with serving(OpenAIBatches()) as running:
        yield running


@pytest.fixture
def anthropic() -> Iterator[Anthropic]:
    with serving(Anthropic()) as running:
        yield running


def model(service: Service, **arguments: Any) -> Any:
    name = "openai" if isinstance(service, OpenAIBatches) else "anthropic"
    given = {"model": "some-model", "base_url": f"{service.url}/v1", "poll_s": 0.02, "retry_backoff_s": 0.01}
    return make_model(name, {**given, **arguments}, batch_api=True)


def sums(count: int, start: int = 0) -> list[Any]:
    return [generate(f"What is {n} + 1?", document=n) for n in range(start, start + count)]


def values(requests: list[Any], found: dict[str, Outcome]) -> list[Any]:
    return [found[request.id].value for request in requests]  # type: ignore[union-attr]


def entries(home: Path) -> int:
    with closing(sqlite3.connect(home / "batches.sqlite")) as book:
        (count,) = book.execute("SELECT count(*) FROM entries").fetchone()
    return int(count)


# --- the plain way -------------------------------------------------------------------------------------


def test_a_window_is_one_batch_and_every_answer_is_its_own(service: Any, home: Path) -> None:
    service.seconds = 0.2
    requests = sums(40)
    found = ask(model(service), requests)
    assert values(requests, found) == [str(n + 1) for n in range(40)]
    assert len(service.batches) == 1
    outcome = found[requests[0].id]
    assert isinstance(outcome, Response)
    assert outcome.usage is not None
    assert outcome.usage.batched
    assert (outcome.finish, outcome.seconds) == ("stop", None)
    assert entries(home) == 0


def test_images_are_in_the_batch(service: Any) -> None:
    request = generate(chat("What is 1 + 1?", picture=Image.new("RGB", (8, 6), "red")))
    assert values([request], ask(model(service), [request])) == ["2"]


def test_requests_beyond_the_limit_are_split_into_batches(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = model(service)
    monkeypatch.setattr(type(asked.service), "max_lines", 3)
    requests = sums(8)
    assert values(requests, ask(asked, requests)) == [str(n + 1) for n in range(8)]
    assert len(service.batches) == 3


def test_the_identity_equals_that_of_the_model_without_batches(service: Any) -> None:
    name = "openai" if isinstance(service, OpenAIBatches) else "anthropic"
    alone = make_model(name, {"model": "some-model", "base_url": f"{service.url}/v1"})
    assert asyncio.run(alone.identify()) == asyncio.run(model(service).identify())


def test_likelihoods_fail(service: Any) -> None:
    request = Likelihood(task="t", document=0, prompt=Prompt.of_text("a"), continuation="b")
    assert isinstance(ask(model(service), [request])[request.id], Failure)
    assert not service.batches


# --- picked up again -----------------------------------------------------------------------------------


def begin_and_die(asked: Any, requests: list[Any], service: Any) -> None:
    """Submit requests and stop before the results, like a killed process."""

    async def go() -> None:
        await asked.open()

        async def wait() -> None:
            async for _ in asked.answer(requests):
                pass

        waiting = asyncio.ensure_future(wait())
        while not service.batches:
            await asyncio.sleep(0.01)
        while not asked.submissions.list_batches():
            await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        asked._answered = set()
        await asked.close()

    asyncio.run(go())


def test_a_running_batch_is_not_submitted_again(service: Any) -> None:
    service.seconds = 60
    requests = sums(6)
    begin_and_die(model(service), requests, service)
    service.seconds = 0
    assert values(requests, ask(model(service), requests)) == [str(n + 1) for n in range(6)]
    assert len(service.batches) == 1


def test_only_new_requests_are_submitted(service: Any) -> None:
    service.seconds = 60
    begin_and_die(model(service), sums(6), service)
    service.seconds = 0
    requests = sums(6, start=3)
    assert values(requests, ask(model(service), requests)) == [str(n + 1) for n in range(3, 9)]
    _, second = service.batches.values()
    assert len(second.get("lines") or second.get("requests")) == 3


def test_a_batch_without_a_recorded_id_is_found(service: Any, home: Path) -> None:
    service.seconds = 60
    requests = sums(6)
    begin_and_die(model(service), requests, service)
    with closing(sqlite3.connect(home / "batches.sqlite", isolation_level=None)) as book:
        book.execute("UPDATE batches SET batch = NULL")
    service.seconds = 0
    assert values(requests, ask(model(service), requests)) == [str(n + 1) for n in range(6)]
    assert len(service.batches) == 1


def test_a_batch_that_never_arrived_is_submitted_again(service: Any) -> None:
    requests = sums(4)
    asked = model(service)
    asked.submissions.record_intent("key-of-nothing", [request.id for request in requests])
    assert values(requests, ask(asked, requests)) == [str(n + 1) for n in range(4)]
    assert len(service.batches) == 1


def test_stored_answers_leave_the_submission_log(service: Any) -> None:
    requests = sums(3)
    ask(model(service), requests)
    ask(model(service), requests)
    assert len(service.batches) == 2


def test_another_model_has_other_batches(service: Any) -> None:
    service.seconds = 60
    begin_and_die(model(service), sums(3), service)
    service.seconds = 0
    ask(model(service, model="another-model"), sums(3))
    assert len(service.batches) == 2


# --- trouble -------------------------------------------------------------------------------------------


def test_failed_lines_are_failures_and_retried_in_the_next_run(openai: OpenAIBatches) -> None:
    openai.spoil = {0: "error", 2: "expired", 3: "missing"}
    requests = sums(5)
    found = ask(model(openai), requests)
    kinds = [getattr(found[request.id], "kind", "answered") for request in requests]
    assert kinds == ["server error", "answered", "expired", "expired", "answered"]
    again = [request for request, kind in zip(requests, kinds, strict=True) if kind != "answered"]
    assert values(again, ask(model(openai), again)) == ["1", "3", "4"]
    assert len(openai.batches["batch_2"]["lines"]) == 3


def test_failed_results_are_failures_and_retried_in_the_next_run(anthropic: Anthropic) -> None:
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": "too long"}}
    anthropic.spoil = {
        0: {"type": "errored", "error": error},
        1: {"type": "expired"},
        2: {"type": "canceled"},
    }
    requests = sums(4)
    found = ask(model(anthropic), requests)
    kinds = [getattr(found[request.id], "kind", "answered") for request in requests]
    assert kinds == ["bad request", "expired", "canceled", "answered"]
    assert values(requests[:3], ask(model(anthropic), requests[:3])) == ["1", "2", "3"]


def test_a_failed_batch_gives_the_reason(openai: OpenAIBatches, home: Path) -> None:
    openai.fate = "failed"
    requests = sums(3)
    outcomes = ask(model(openai), requests).values()
    assert {(one.kind, one.message) for one in outcomes} == {("batch failed", "Enqueued token limit reached")}  # type: ignore[union-attr]
    assert entries(home) == 0


def test_an_expired_batch_returns_its_finished_lines(openai: OpenAIBatches) -> None:
    openai.fate, openai.spoil = "expired", {1: "expired"}
    requests = sums(3)
    found = ask(model(openai), requests)
    assert isinstance(found[requests[0].id], Response)
    assert isinstance(found[requests[1].id], Failure)


def test_a_lost_reply_does_not_cause_a_second_submission(service: Any) -> None:
    make = service.reply
    lost: list[str] = []

    def losing(method: str, path: str, headers: dict[str, str], body: bytes) -> Any:
        reply = make(method, path, headers, body)
        if method == "POST" and path.endswith("/batches") and not lost:
            lost.append(path)
            return 504, {}, {"error": {"message": "gateway timeout"}}
        return reply

    service.reply = losing
    requests = sums(3)
    assert values(requests, ask(model(service), requests)) == ["1", "2", "3"]
    assert lost
    assert len(service.batches) == 1


def test_rejected_settings_are_found_before_submission(service: Any) -> None:
    name = "no-temperature-1" if isinstance(service, OpenAIBatches) else "claude-no-temperature-1"
    requests = sums(4)
    assert values(requests, ask(model(service, model=name), requests)) == ["1", "2", "3", "4"]


def test_a_service_without_batches_fails_only_the_requests(service: Any, home: Path) -> None:
    service.reply = lambda *_: (403, {}, {"error": {"message": "no batches for you"}})
    requests = sums(3)
    found = ask(model(service), requests)
    assert {one.kind for one in found.values()} == {"not allowed"}  # type: ignore[union-attr]
    assert entries(home) == 0


# --- names and arguments -------------------------------------------------------------------------------


def test_batch_gpt4_uses_openais_batches(openai: OpenAIBatches) -> None:
    arguments = {
        "model_version": "gpt-4o",
        "base_url": f"{openai.url}/v1",
        "modality": "image",
        "poll_s": 0.02,
    }
    requests = [generate("What is 1 + 1?", max_gen_toks=None)]
    assert values(requests, ask(make_model("batch_gpt4", arguments), requests)) == ["2"]
    (batch,) = openai.batches.values()
    assert batch["lines"][0]["body"]["max_tokens"] == 1024


@pytest.mark.parametrize(
    ("name", "arguments", "complaint"),
    [
        ("embedded", {}, "the model `embedded` has no batch API"),
        ("gemini", {"model": "x"}, "the model `gemini` has no batch API"),
        ("openai", {"model": "x", "api": "responses"}, "the batch API supports only"),
        ("openai", {"model": "x", "poll_s": "often"}, "`poll_s` must be a number of seconds"),
    ],
)
def test_invalid_arguments_are_rejected(name: str, arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidOption, match=complaint):
        make_model(name, arguments, batch_api=True)


def test_expired_submissions_are_deleted(tmp_path: Path) -> None:
    book = SubmissionLog("scope", tmp_path / "book.sqlite")
    book.record_intent("old", ["a"])
    book.record_intent("new", ["b"])
    with closing(sqlite3.connect(tmp_path / "book.sqlite", isolation_level=None)) as connection:
        connection.execute("UPDATE batches SET at = 0 WHERE key = 'old'")
    book.delete_expired()
    assert [entry.key for entry in book.find(["a", "b"])] == ["new"]


def test_the_submission_log_contains_no_key(service: Any, home: Path) -> None:
    service.seconds = 60
    begin_and_die(model(service), sums(2), service)
    for file in home.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes()
