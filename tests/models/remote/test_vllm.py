"""`openai` and `openai-completions` against vLLM's real server: the answers of the same weights in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw
from tests.models.remote.asking import ask, chat, generate
from tests.models.remote.vllm_server import vllm_server
from tests.models.vllm.checkpoints import make_embedded_checkpoint

import assay
from assay.core.ports import Model
from assay.core.records.messages import Prompt
from assay.core.records.requests import Likelihood, Request, RollingLikelihood
from assay.core.records.responses import LogProbability, Response
from assay.models.embedded.adapter import SHIPPED_WEIGHTS, EmbeddedModel
from assay.models.remote.completions import CompletionsModel
from assay.models.remote.openai import OpenAIModel

if find_spec("vllm") is None:
    pytest.skip("not installed: vllm", allow_module_level=True)

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.server,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = make_embedded_checkpoint(tmp_path_factory.mktemp("served") / "embedded")
    with vllm_server(folder, name="embedded") as url:
        yield url


def shape(color: tuple[int, int, int], *, round_: bool) -> Image.Image:
    made = Image.new("RGB", (32, 32), (240, 240, 240))
    draw = ImageDraw.Draw(made)
    (draw.ellipse if round_ else draw.rectangle)((7, 7, 25, 25), fill=color)
    return made


def values(model: Model, requests: Sequence[Request]) -> list[Any]:
    outcomes = ask(model, requests)
    found = [outcomes[request.id] for request in requests]
    assert all(isinstance(one, Response) for one in found), found
    return [one.value for one in found if isinstance(one, Response)]


def close(there: Sequence[Any], here: Sequence[Any]) -> None:
    for told, own in zip(there, here, strict=True):
        assert isinstance(told, LogProbability) and isinstance(own, LogProbability)
        assert told.total == pytest.approx(own.total, abs=1e-3)
        assert told.greedy == own.greedy


def test_chats_are_answered_as_in_this_process(address: str) -> None:
    questions = [
        *(chat(f"What is {n} + {n}?") for n in range(6)),
        chat("What is 2 + 3?", system="Be brief."),
    ]
    requests = [generate(one, document=at) for at, one in enumerate(questions)]
    served = OpenAIModel(model="embedded", base_url=address)
    assert values(served, requests) == values(EmbeddedModel(), requests)


def test_pictures_are_seen_as_in_this_process(address: str) -> None:
    colors = ((215, 35, 35), (30, 160, 60), (40, 70, 200))
    shapes = [shape(color, round_=round_) for color in colors for round_ in (False, True)]
    requests = [
        generate(chat(question, picture=one), document=at)
        for at, one in enumerate(shapes)
        for question in ("What color is the shape?", "What shape is it?")
    ]
    served = OpenAIModel(model="embedded", base_url=address)
    assert values(served, requests) == values(EmbeddedModel(), requests)


def make_likelihoods(count: int = 8) -> list[Request]:
    return [
        Likelihood(task="t", document=n, prompt=Prompt.of_text(f"Question: What is {n} + {n}?\nAnswer:"), continuation=f" {choice}")
        for n in range(count)
        for choice in (2 * n, 2 * n + 1, "blue")
    ]  # fmt: skip


WAYS: dict[str, dict[str, Any]] = {
    "texts": {},
    "tokens": {"tokenizer": str(SHIPPED_WEIGHTS), "add_bos_token": True},
}


@pytest.mark.parametrize("way", WAYS)
def test_likelihoods_are_those_of_this_process(address: str, way: str) -> None:
    if "tokenizer" in WAYS[way]:
        pytest.importorskip("transformers")
    requests = [
        *make_likelihoods(),
        Likelihood(task="t", document=90, prompt=Prompt.of_text("The sky is "), continuation="blue"),
    ]
    served = CompletionsModel(model="embedded", base_url=address, **WAYS[way])
    close(values(served, requests), values(EmbeddedModel(), requests))


def test_texts_go_on_as_in_this_process(address: str) -> None:
    requests = [generate(Prompt.of_text(f"What is {n} + {n}?"), document=n) for n in range(6)]
    served = CompletionsModel(model="embedded", base_url=address)
    assert values(served, requests) == values(EmbeddedModel(), requests)


def test_whole_texts_are_as_likely_as_in_this_process(address: str) -> None:
    """As texts they have no start token of their own."""
    text = "Once there was a red fox."
    request = RollingLikelihood(task="t", document=0, prompt=Prompt.of_text(text))
    alone = Likelihood(task="t", document=0, prompt=Prompt.of_text(""), continuation=text)
    served = CompletionsModel(model="embedded", base_url=address)
    close(values(served, [request]), values(EmbeddedModel(), [alone]))


def test_the_probe_sees_what_the_server_does(address: str) -> None:
    model = CompletionsModel(model="embedded", base_url=address)
    asyncio.run(_probe(model))
    assert {"likelihood", "rolling"} <= model.traits.abilities
    talker = OpenAIModel(model="embedded", base_url=address)
    asyncio.run(_probe(talker))
    assert "image" in talker.traits.abilities


async def _probe(model: OpenAIModel | CompletionsModel) -> None:
    await model.probe()


TASKS = {
    "quickstart_addition": "openai-completions",
    "quickstart_facts": "openai-completions",
    "quickstart_shapes": "openai",
}


@pytest.mark.parametrize("task", TASKS)
def test_a_run_gets_the_results_of_the_embedded_model(address: str, task: str, workspace: Path) -> None:
    arguments = {"model": "embedded", "base_url": address}
    served = assay.run(model=TASKS[task], model_args=arguments, tasks=[task], limit=24)
    own = assay.run(model="embedded", tasks=[task], limit=24)
    assert served.failed_requests()[0] == 0
    assert served.results == own.results
