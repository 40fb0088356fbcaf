"""A LoRA adapter in vLLM gives the texts of transformers with the same adapter.

Not its likelihoods: on a processor, vLLM 0.32 dies of prompt_logprobs with an adapter.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.models.hf.tiny_checkpoints import tiny_checkpoint
from tests.models.vllm.shared_engine import share_model

from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Request, Settings
from assay.core.records.responses import Outcome, Response
from assay.models.hf import HfModel
from assay.models.vllm import VllmModel

if find_spec("vllm") is None:
    pytest.skip("not installed: vllm", allow_module_level=True)

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.torch,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),
]


def adapter(base: Path, folder: Path) -> Path:
    """An adapter with an effect: by default, peft creates one without."""
    peft = pytest.importorskip("peft")
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(11)
    config = peft.LoraConfig(
        r=8,
        lora_alpha=32,
        target_modules=["q_proj", "v_proj"],
        init_lora_weights=False,
        task_type="CAUSAL_LM",
    )
    peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).save_pretrained(folder)
    return folder


def hf_texts(requests: Sequence[Request], **arguments: Any) -> list[str]:
    async def work() -> dict[str, Outcome]:
        model = HfModel(dtype="float32", batch_size=4, **arguments)
        await model.open()
        found = {outcome.request_id: outcome async for outcome in model.answer(requests)}
        await model.close()
        return found

    return texts(asyncio.run(work()), requests)


def texts(outcomes: dict[str, Outcome], requests: Sequence[Request]) -> list[str]:
    """Without special tokens, which the two adapters treat differently, as lm-eval's do."""
    found = [outcomes[request.id] for request in requests]
    assert all(isinstance(one, Response) for one in found), found
    said = [str(one.value) for one in found if isinstance(one, Response)]
    return [re.sub(r"<s>|<pad>|</think>", "", one).rstrip("\ufffd") for one in said]


def test_an_adapter_changes_answers_as_in_transformers(tmp_path: Path) -> None:
    base = tiny_checkpoint("llama", hidden_size=128, intermediate_size=192)
    lora = adapter(base, tmp_path / "lora")
    settings = Settings({"max_gen_toks": 12, "do_sample": False})
    requests = [
        Generate(task="t", document=at, prompt=Prompt.of_text(text), settings=settings)
        for at, text in enumerate(("the sky", "once upon a time the cat", "Question: what", "a"))
    ]
    given = {"pretrained": str(base), "lora_local_path": str(lora), "dtype": "float32", "enforce_eager": True}
    with share_model(VllmModel, **given) as engine:
        ours = texts(engine.ask(requests), requests)
        facts = engine.do(engine.model.identify())
    assert ours == hf_texts(requests, pretrained=str(base), peft=str(lora))
    assert ours != hf_texts(requests, pretrained=str(base))
    assert facts["lora.weights_sha256"]
