"""Send the requests of `remote_models.py` through another harness, in that harness's environment.

    python benchmarks/remote_peers.py lm_eval|lmms_eval|inspect_ai chat|likelihood URL COUNT CONCURRENCY

Measures only `generate_until` or `_loglikelihood_tokens` with prepared prompts, and the complete `eval` of inspect_ai.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

PROMPT = "What is {n} + {n}? " + "Think about it. " * 15


def read_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def read_peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_lm_eval(kind: str, url: str, count: int, concurrency: int) -> dict[str, Any]:
    from lm_eval.api.instance import Instance
    from lm_eval.models.api_models import JsonChatStr
    from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI

    if kind == "likelihood":
        model = LocalCompletionsAPI(
            base_url=f"{url}/completions", model="latency", num_concurrent=concurrency, tokenizer_backend=None
        )
        words = [(PROMPT.format(n=n // 4), f" word{n % 4}") for n in range(count)]
        pairs = [((context, end), list(range(len(context.split()))), [90]) for context, end in words]
        model.tokenized_requests, model.tokenizer = True, object()
        return measure_requests(lambda: model._loglikelihood_tokens(pairs), count)
    model = LocalChatCompletion(
        base_url=f"{url}/chat/completions", model="latency", num_concurrent=concurrency
    )
    chats = [json.dumps([{"role": "user", "content": PROMPT.format(n=n)}]) for n in range(count)]
    settings = {"until": ["\n"], "max_gen_toks": 32, "do_sample": False}
    requests = [
        Instance("generate_until", {}, (JsonChatStr(chat), dict(settings)), number)
        for number, chat in enumerate(chats)
    ]
    return measure_requests(lambda: model.generate_until(requests), count)


def measure_lmms_eval(kind: str, url: str, count: int, concurrency: int) -> dict[str, Any]:
    """Measure `async_openai`; its argument `num_cpus` is the concurrency."""
    from lmms_eval.api.instance import Instance
    from lmms_eval.models.chat.async_openai import AsyncOpenAIChat

    if kind != "chat":
        raise SystemExit("async_openai does not support log-likelihoods")
    model = AsyncOpenAIChat(model_version="latency", base_url=url, api_key="x", num_cpus=concurrency)
    model.task_dict = {"many": {"test": [PROMPT.format(n=n) for n in range(count)]}}

    def messages(text: str) -> list[dict[str, Any]]:
        return [{"role": "user", "content": [{"type": "text", "text": text}]}]

    settings = {"until": ["\n"], "max_new_tokens": 32, "do_sample": False, "temperature": 0}
    requests = [
        Instance(
            request_type="generate_until",
            arguments=(PROMPT.format(n=n), messages, dict(settings), n, "many", "test"),
            idx=0,
            metadata={"task": "many", "doc_id": n, "repeats": 1},
        )
        for n in range(count)
    ]
    return measure_requests(lambda: model.generate_until(requests), count)


def measure_inspect_ai(kind: str, url: str, count: int, concurrency: int) -> dict[str, Any]:
    """Measure a complete `eval`, with its log, as Assay is measured with its journal."""
    from inspect_ai import Task
    from inspect_ai import eval as run_eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import GenerateConfig, get_model
    from inspect_ai.scorer import exact
    from inspect_ai.solver import generate

    if kind != "chat":
        raise SystemExit("inspect_ai does not support log-likelihoods of prompts")
    config = GenerateConfig(max_connections=concurrency, max_tokens=32, temperature=0, stop_seqs=["\n"])
    model = get_model("openai/latency", base_url=url, responses_api=False, config=config)
    samples = [Sample(input=PROMPT.format(n=n), target="The answer is 42.") for n in range(count)]
    task = Task(dataset=MemoryDataset(samples), solver=generate(), scorer=exact())

    def work() -> list[Any]:
        with tempfile.TemporaryDirectory() as folder:
            (log,) = run_eval(
                task, model=model, log_dir=folder, display="none", log_level="error", max_samples=concurrency
            )
        if log.status != "success" or log.results is None:
            raise SystemExit(f"inspect_ai: {log.error.message if log.error else log.status}")
        return [log.results.completed_samples] * count

    return measure_requests(work, count)


def measure_requests(work: Callable[[], Any], count: int) -> dict[str, Any]:
    began, used = time.perf_counter(), read_cpu_s()
    found = list(work())
    seconds, used = time.perf_counter() - began, read_cpu_s() - used
    return {
        "rate": count / seconds,
        "cpu_ms": 1000 * used / count,
        "scored": len(found),
        "first": str(found[0]),
        "peak_mb": read_peak_mb(),
    }


def main() -> None:
    harness, kind, url, count, concurrency = sys.argv[1:]
    os.environ.setdefault("OPENAI_API_KEY", "x")
    measure = {
        "lm_eval": measure_lm_eval,
        "lmms_eval": measure_lmms_eval,
        "inspect_ai": measure_inspect_ai,
    }[harness]
    print(json.dumps(measure(kind, url, int(count), int(concurrency))))


if __name__ == "__main__":
    main()
