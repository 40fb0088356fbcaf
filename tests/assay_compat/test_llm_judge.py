"""`lmms_eval.llm_judge` in helper files: with an HTTP server, with the judge of the run, and without a judge."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.assay_compat.judge_server import JudgeServer, serving
from tests.making import Function, make_model, write_task

import assay
from assay.testing import ScriptedModel
from assay_compat.plugin import install

pytestmark = pytest.mark.server

SETTINGS = "OPENAI_API_KEY OPENAI_API_URL OPENAI_BASE_URL AZURE_API_KEY AZURE_ENDPOINT API_TYPE LLM_JUDGE_URL".split()


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    install()


@pytest.fixture
def names() -> Any:
    return importlib.import_module("lmms_eval.llm_judge")


def yes(payload: dict[str, Any], number: int) -> str:
    return " 1 \n"


def point_to(server: JudgeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")


def quick(names: Any, **details: Any) -> Any:
    return names.ServerConfig(**{"model_name": "gpt-4o", "retry_delay": 0.01, "timeout": 5, **details})


# --- names and replies ---------------------------------------------------------------------------------


def test_public_names_exist(names: Any) -> None:
    for name in ("protocol", "base", "factory", "prompt", "utils", "providers", "providers.openai"):
        importlib.import_module(f"lmms_eval.llm_judge.{name}")
    protocol = importlib.import_module("lmms_eval.llm_judge.protocol")
    assert protocol.Request is names.Request
    config = names.ServerConfig(model_name="m")
    assert (config.max_tokens, config.timeout, config.num_retries, config.max_concurrent) == (1024, 60, 5, 10)
    for provider in ("openai", "azure", "async_openai", "async_azure", "bedrock", "local", "dummy"):
        assert isinstance(names.get_server(provider, config), names.ServerInterface)
    with pytest.raises(ValueError, match="nobody"):
        names.get_server("nobody", config)


@pytest.mark.parametrize(
    ("reply", "form", "value"),
    [
        ("1", "0/1", 1), ("0", "0/1", 0), ("[1]", "1/0", 1), ("the 10th", "0/1", 1), ("yes", "0/1", 0),
        ("Yes, it is", "yes/no", True), ("No. yes", "yes/no", False), ("y", "yes/no", False),
    ],
)  # fmt: skip
def test_replies_are_parsed_as_in_lmms_eval(names: Any, reply: str, form: str, value: Any) -> None:
    read = names.ResponseParser.parse_binary_response(reply, form)
    assert read == value and type(read) is type(value)


def test_scores_and_json_are_parsed_as_in_lmms_eval(names: Any) -> None:
    read = names.ResponseParser
    assert read.parse_comparative_response("7, 8.5\nbecause 3") == (7.0, 8.5)
    assert read.parse_comparative_response("seven\n7 8") == (-1.0, -1.0)
    assert read.parse_score_response("I say 12 of 10", (1, 10)) == 10
    assert read.parse_score_response("none", (1, 10)) == 1
    assert read.parse_json_response('so {"a": 1} it is') == {"a": 1}
    assert read.parse_json_response("{broken}") == {}


# --- over HTTP -----------------------------------------------------------------------------------------


def test_binary_request_and_reply(names: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(yes) as server:
        point_to(server, monkeypatch)
        judge = names.get_server("openai", quick(names, system_prompt="Be fair.", top_p=0.5))
        told = judge.evaluate_binary(
            question="q", answer="a", prediction="p", custom_prompt="{question}/{pred}/{answer}"
        )
    assert told == {"result": 1, "raw_response": "1", "model": "gpt-4o", "prompt": "q/p/a", "success": True}
    (payload,) = server.asked
    assert payload == {
        "model": "gpt-4o",
        "messages": [{"role": "system", "content": "Be fair."}, {"role": "user", "content": "q/p/a"}],
        "max_tokens": 1024,
        "temperature": 0.0,
        "top_p": 0.5,
    }
    assert server.headers[0]["authorization"] == "Bearer sk-test"
    assert server.paths == ["/v1/chat/completions"]


def test_comparative_and_rubric_requests(names: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda payload, number: "8 6\nfine" if number == 0 else '{"style": 4}') as server:
        point_to(server, monkeypatch)
        judge = names.get_server("openai", quick(names))
        compared = judge.evaluate_comparative("q", "one", "two", context="c", score_range=(0, 9))
        rated = judge.evaluate_with_rubric("q", "p", {"style": "short"})
    assert compared["scores"] == (8.0, 6.0) and "from 0 to 9" in compared["prompt"]
    assert rated["scores"] == {"style": 4}


def test_payloads_of_reasoning_models_json_and_azure(names: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(yes) as server:
        point_to(server, monkeypatch)
        names.get_server(
            "openai", quick(names, model_name="o3-mini", response_format="json")
        ).evaluate_binary("q", "a", "p")
        monkeypatch.setenv("AZURE_ENDPOINT", server.url)
        monkeypatch.setenv("AZURE_API_KEY", "az")
        names.get_server("azure", quick(names, model_name="o3-mini")).evaluate_binary("q", "a", "p")
    first, second = server.asked
    assert first["max_completion_tokens"] == 1024 and "temperature" not in first and "max_tokens" not in first
    assert first["response_format"] == {"type": "json_object"}
    assert second["max_tokens"] == 1024
    assert server.paths[1].startswith("/v1/openai/deployments/o3-mini/chat/completions?api-version=")
    assert server.headers[1]["api-key"] == "az"


def test_images_are_sent_except_to_a_local_server(
    names: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    picture = Image.new("RGB", (4, 4), "red")
    picture.save(tmp_path / "red.png")
    with serving(yes) as server:
        point_to(server, monkeypatch)
        request = names.Request(
            messages=[{"role": "user", "content": "look"}],
            images=[picture, str(tmp_path / "red.png"), b"aGVsbG8="],
        )
        names.get_server("openai", quick(names)).evaluate(request)
        monkeypatch.setenv("LLM_JUDGE_URL", f"{server.url}/chat/completions")
        local = names.get_server("local", quick(names))
        assert local.is_available()
        local.evaluate(request)
    content = server.asked[0]["messages"][0]["content"]
    assert [part["type"] for part in content] == ["text", "image_url", "image_url", "image_url"]
    assert content[3]["image_url"]["url"] == "data:image/jpeg;base64,aGVsbG8="
    assert content[1]["image_url"] == content[2]["image_url"]
    assert server.asked[1]["messages"] == [{"role": "user", "content": "look"}]
    assert request.messages == [{"role": "user", "content": "look"}], "a helper's request is its own"


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        ((429, "slow down"), "rate limit"),
        ((500, "oops"), "server error"),
        ((200, "not json"), "server error"),
    ],
)
def test_temporary_errors_are_retried(
    names: Any, monkeypatch: pytest.MonkeyPatch, trouble: tuple[int, str], kind: str
) -> None:
    with serving(lambda payload, number: "1" if number == 2 else trouble) as server:
        point_to(server, monkeypatch)
        assert names.get_server("openai", quick(names)).evaluate_binary("q", "a", "p")["result"] == 1
        assert len(server.asked) == 3
    with serving(lambda payload, number: trouble) as server:
        point_to(server, monkeypatch)
        with pytest.raises(RuntimeError, match=kind):
            names.get_server("openai", quick(names, num_retries=2)).evaluate_binary("q", "a", "p")
        assert len(server.asked) == 2


def test_timeout_and_rejected_request(names: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda payload, number: 1.0) as server:
        point_to(server, monkeypatch)
        with pytest.raises(RuntimeError, match="timeout: no response within"):
            names.get_server("openai", quick(names, timeout=0.1, num_retries=1)).evaluate_binary(
                "q", "a", "p"
            )
    with serving(lambda payload, number: (401, "bad key")) as server:
        point_to(server, monkeypatch)
        with pytest.raises(RuntimeError, match="401"):
            names.get_server("openai", quick(names)).evaluate_binary("q", "a", "p")
        assert len(server.asked) == 1
    with pytest.raises(RuntimeError, match="connection"):
        names.get_server("openai", quick(names, num_retries=1)).evaluate_binary("q", "a", "p")


def test_judge_requests_are_concurrent(names: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    def slowly(payload: dict[str, Any], number: int) -> str:
        time.sleep(0.05)
        return str(payload["messages"][0]["content"][-1])

    with serving(slowly) as server:
        point_to(server, monkeypatch)
        judge = names.get_server("async_openai", quick(names, max_concurrent=4))
        questions = [f"{number % 2}" for number in range(8)]
        told = asyncio.run(
            judge.evaluate_binary_batch_async(questions, questions, questions, custom_prompt="{question}")
        )
        assert [one["result"] for one in told] == [0, 1] * 4
        assert 2 <= server.most_open <= 4
        assert judge.evaluate_binary("1", "a", "p", custom_prompt="{question}")["result"] == 1


# --- in a run ------------------------------------------------------------------------------------------

HELPER = """
import random
from lmms_eval.llm_judge import ServerConfig, get_server

server = get_server(server_name="openai", config=ServerConfig(model_name="gpt-4o", num_retries=1, retry_delay=0.01))

def process(doc, results):
    before = random.random()
    try:
        told = server.evaluate_binary(question=doc["question"], answer=doc["answer"], prediction=results[0])
        score = told["result"]
    except Exception as error:
        score = 0
    return {"judged": score, "drawn": before + random.random()}
"""


@pytest.fixture
def task(workspace: Path) -> Path:
    metrics = [
        {"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("judged", "drawn")
    ]
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(12)]
    return write_task(
        workspace,
        rows=rows,
        helpers=HELPER,
        process_results=Function("utils.process"),
        metric_list=metrics,
    )


def run(path: Path, **options: Any) -> assay.Run:
    return assay.run(model=make_model(), tasks=[str(path)], **options)


def scores(run: assay.Run) -> list[tuple[Any, ...]]:
    return list(run.journal.query("SELECT metric, document, kind, value FROM verdicts ORDER BY 1, 2"))


def outcomes(run: assay.Run) -> set[tuple[str, str]]:
    return set(run.journal.query("SELECT outcome, why FROM outcomes"))


def test_judge_requests_of_helpers_are_journalled_and_cached(
    task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    def slowly(payload: dict[str, Any], number: int) -> str:
        time.sleep(0.05)
        return "1"

    with serving(slowly) as server:
        point_to(server, monkeypatch)
        first = run(task)
        assert (len(server.asked), first.results["sums"]["judged,none"]) == (12, 1.0)
        assert server.most_open > 1
        assert first.judges == {
            "gpt-4o": {"requests": 12, "cached": 0, "failed": 0, "input_tokens": 132, "output_tokens": 36}
        }
        second = run(task, limit=5)
        assert len(server.asked) == 12, "the cache knows these"
    assert scores(second)[:5] == scores(first)[:5]
    drawn = {row[1]: row[3] for row in scores(first) if row[0] == "drawn"}
    assert [drawn[n] for n in range(5)] == [row[3] for row in scores(second) if row[0] == "drawn"]


def test_judge_requests_do_not_affect_random_numbers(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    def now_and_then(payload: dict[str, Any], number: int) -> str:
        time.sleep(0.01 * (number % 3))
        return "1"

    with serving(now_and_then) as server:
        point_to(server, monkeypatch)
        waited = run(task, no_cache=True)
    quickly = run(task, judge=ScriptedModel(lambda request: "1", name="j"), no_cache=True)
    assert scores(waited) == scores(quickly)


def test_judge_of_the_run_takes_precedence(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = ScriptedModel(lambda request: "1" if request.document % 2 else "0", name="house")
    done = run(task, judge=judge)
    assert done.results["sums"]["judged,none"] == 0.5
    assert len(judge.asked) == 12
    request: Any = judge.asked[0]
    assert request.prompt.chat and request.settings.max_tokens == 1024
    assert done.judges["house"]["requests"] == 12


def test_failed_judge_leaves_the_document_unscored(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda payload, number: "1" if "What is 3" not in str(payload) else (500, "oops")) as server:
        point_to(server, monkeypatch)
        first = run(task)
        assert (
            "judge-failed",
            "judge failed: gpt-4o: server error: HTTP 500 Internal Server Error: oops",
        ) in outcomes(first)
        assert first.results["sums"]["judged,none"] == 1.0
        (estimate,) = [one for one in first.estimates if one.metric == "judged"]
        assert (estimate.scored, estimate.unscored) == (11, 1)
        asked = len(server.asked)
        server.reply = yes
        second = run(task)
        assert len(server.asked) == asked + 1
        assert second.results["sums"]["judged,none"] == 1.0
        assert outcomes(second) == {("scored", "")}


def test_missing_judge_is_reported_in_plan_and_run(task: Path) -> None:
    notes = assay.plan(model=make_model(), tasks=[str(task)]).notes
    assert sum("set --judge or OPENAI_API_KEY" in note for note in notes) == 1
    done = run(task)
    ((word, why),) = outcomes(done)
    assert word == "judge-failed" and "none is configured" in why
    assert done.results["sums"]["judged,none"] is None


def test_helper_threads_and_event_loops_can_call_the_judge(workspace: Path) -> None:
    helper = """
import asyncio
from concurrent.futures import ThreadPoolExecutor
from lmms_eval.llm_judge import Request, ServerConfig, get_server
server = get_server("async_openai", ServerConfig(model_name="m"))
def ask(text): return server.evaluate(Request(messages=[{"role": "user", "content": text}])).content
def process(doc, results):
    with ThreadPoolExecutor(3) as pool:
        first = list(pool.map(ask, ["a", "b", "c"]))
    async def both():
        return await server.evaluate_batch([Request(messages=[{"role": "user", "content": t}]) for t in "de"])
    second = [one.content for one in asyncio.run(both())]
    return {"judged": float("".join(first + second) == "ABCDE")}
"""
    path = write_task(
        workspace,
        helpers=helper,
        process_results=Function("utils.process"),
        metric_list=[{"metric": "judged", "aggregation": "mean", "higher_is_better": True}],
    )
    judge = ScriptedModel(lambda request: request.prompt.text.upper(), name="j")
    assert run(path, judge=judge).results["sums"]["judged,none"] == 1.0


def test_aggregation_can_call_a_judge(workspace: Path) -> None:
    helper = """
from lmms_eval.llm_judge import Request, ServerConfig, get_server
server = get_server("assay", ServerConfig(model_name="m"))
def process(doc, results): return {"judged": results[0]}
def total(values):
    return float(server.evaluate(Request(messages=[{"role": "user", "content": " ".join(values)}])).content)
"""
    path = write_task(
        workspace,
        helpers=helper,
        process_results=Function("utils.process"),
        metric_list=[{"metric": "judged", "aggregation": Function("utils.total"), "higher_is_better": True}],
    )
    judge = ScriptedModel(lambda request: str(len(request.prompt.text.split())), name="j")
    assert run(path, judge=judge).results["sums"]["judged,none"] == 6.0


def test_verifiers_with_judge_and_extractors(monkeypatch: pytest.MonkeyPatch) -> None:
    verifiers = importlib.import_module("lmms_eval.verifiers")
    judged = importlib.import_module("lmms_eval.verifiers.openai")
    extractors = importlib.import_module("lmms_eval.verifiers.extractors")
    with serving(lambda payload, number: "CORRECT" if "four" in str(payload) else "INCORRECT") as server:
        point_to(server, monkeypatch)
        pipeline = verifiers.VerificationPipeline(
            extractors=[extractors.StripReasoningExtractor()],
            verifier=judged.OpenAIVerifier(model="m", custom_prompt="{prediction} = {ground_truth}?"),
        )
        right = pipeline("q", "<think>five?</think> four", "4")
        wrong = pipeline("q", "five", "4")
    assert (right.score, right.is_correct, right.metadata["extracted_prediction"]) == (1.0, True, "four")
    assert (wrong.score, wrong.is_correct) == (0.0, False)
    assert server.asked[0]["messages"][0]["content"] == "four = 4?"
    failed = judged.OpenAIVerifier(max_retries=1).verify("q", "p", "g")
    assert failed.metadata["judge_failed"] is True


@pytest.mark.parametrize(
    ("kind", "prediction", "truth", "correct", "confident"),
    [
        ("exact_match", " Bern ", "bern", True, True),
        ("exact_match", "Basel", "Bern", False, False),
        ("contains", "It is Bern.", "bern", True, True),
        ("mcq_match", "(b).", "B", True, True),
        ("mcq_match", "maybe B", "B", False, False),
        ("numeric", "about 3.1415", "3.1416", True, True),
        ("numeric", "no idea", "3", False, False),
    ],
)
def test_rules_verify(kind: str, prediction: str, truth: str, correct: bool, confident: bool) -> None:
    verifiers = importlib.import_module("lmms_eval.verifiers")
    result = verifiers.build_verification_pipeline({"verifier": {"type": kind}})("q", prediction, truth)
    assert (result.is_correct, result.metadata["confident"]) == (correct, confident)


def test_extractors_and_chains() -> None:
    verifiers = importlib.import_module("lmms_eval.verifiers")
    assert verifiers.NumberExtractor()("so \\boxed{12} of 30") == "12"
    assert verifiers.NumberExtractor()("1,234 then 5") == "5"
    assert verifiers.RegexExtractor(r"Answer: (\w+)")("Answer: yes!") == "yes"
    assert verifiers.RegexExtractor("x", fallback="none")("y") == "none"
    assert verifiers.StripExtractor()(" done</s> ") == "done"
    chain = {"verifier": {"type": "composite", "verifiers": [{"type": "exact_match"}, {"type": "numeric"}]}}
    assert verifiers.build_verification_pipeline(chain)("q", "it is 7", "7").is_correct
    with pytest.raises(KeyError, match="nothing"):
        verifiers.build_verification_pipeline({"verifier": {"type": "nothing"}})
