"""Compare the NumPy engine with transformers, the reference implementation of the architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from assay.models.embedded.engine import EmbeddedEngine, PromptImage, TokenPrompt

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

PROMPTS = [
    "Question: What is 58 + 64?\nAnswer:",
    "Question: What color is a banana?\nA. red\nB. yellow\nC. blue\nD. green\nAnswer:",
    "Copy: qwzkv\nOutput:",
    "Once upon a time, there was a brave boy named Leo.",
]


@pytest.fixture(scope="module")
def network(folder: Path) -> Any:
    from transformers import AutoModelForImageTextToText

    return AutoModelForImageTextToText.from_pretrained(folder).eval()


@pytest.fixture(scope="module")
def processor(folder: Path) -> Any:
    from transformers import AutoProcessor

    return AutoProcessor.from_pretrained(folder)


def log_probabilities(network: Any, inputs: Any, tokens: int) -> float:
    """Return the log probability of the last tokens according to the reference model."""
    import torch

    with torch.no_grad():
        scores = network(**inputs).logits[0].log_softmax(-1)
    ids = inputs["input_ids"][0]
    return sum(float(scores[place - 1, ids[place]]) for place in range(len(ids) - tokens, len(ids)))


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("continuation", [" 122", " yellow", "?"])
def test_likelihoods_of_text_agree(
    engine: EmbeddedEngine, network: Any, processor: Any, prompt: str, continuation: str
) -> None:
    ids = engine.tokenizer.encode(continuation)
    ours, _ = engine.compute_log_likelihood(TokenPrompt(engine.encode(prompt)), ids)
    inputs = processor.tokenizer(prompt + continuation, return_tensors="pt")
    assert ours == pytest.approx(log_probabilities(network, inputs, len(ids)), abs=1e-4)


def test_likelihoods_with_an_image_agree(
    engine: EmbeddedEngine, network: Any, processor: Any, noise: Image.Image, red_square: Image.Image
) -> None:
    text = "<image>\nQuestion: What color is the shape?\nAnswer: red\n\n<image>\nQuestion: What shape is this?\nAnswer:"
    continuation = " square\n"
    pictures = (PromptImage("noise", lambda: noise), PromptImage("red", lambda: red_square))
    ids = engine.tokenizer.encode(continuation)
    ours, _ = engine.compute_log_likelihood(TokenPrompt(engine.encode(text), pictures), ids)
    inputs = processor(images=[noise, red_square], text=text + continuation, return_tensors="pt")
    assert ours == pytest.approx(log_probabilities(network, inputs, len(ids)), abs=1e-4)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_texts_are_equal(engine: EmbeddedEngine, network: Any, processor: Any, prompt: str) -> None:
    inputs = processor.tokenizer(prompt, return_tensors="pt")
    theirs = network.generate(**inputs, max_new_tokens=40, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    ours = engine.generate(TokenPrompt(engine.encode(prompt)), max_tokens=40)
    assert ours.text == processor.tokenizer.decode(theirs, skip_special_tokens=True)


def test_long_texts_agree(engine: EmbeddedEngine, network: Any, processor: Any) -> None:
    text = PROMPTS[-1] * 18
    inputs = processor.tokenizer("<s>" + text, return_tensors="pt")
    assert 768 < len(text) < engine.context
    expected = log_probabilities(network, inputs, len(text) + 1)
    assert engine.compute_rolling_log_likelihood(text) == pytest.approx(expected, rel=1e-5)


def test_chat_prompts_are_the_same_tokens(
    engine: EmbeddedEngine, processor: Any, red_square: Image.Image
) -> None:
    from assay.core.records.messages import Image as ImagePart
    from assay.core.records.messages import Message, Prompt, Text
    from assay.models.embedded.adapter import SHIPPED_WEIGHTS
    from assay.models.embedded.chat_template import ChatTemplate

    parts = (ImagePart(digest="red", load=lambda: red_square), Text("What color is the shape?"))
    messages = (Message("system", (Text("Be brief."),)), Message("user", parts))
    text = ChatTemplate(SHIPPED_WEIGHTS / "chat_template.jinja").render(Prompt(messages, chat=True))
    content = [{"type": "image", "image": red_square}, {"type": "text", "text": "What color is the shape?"}]
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
    theirs = processor.apply_chat_template(chat, add_generation_prompt=True)
    assert text == theirs
    inputs = processor.apply_chat_template(
        chat, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="np"
    )
    image = engine.tokenizer.find_id("<image>")
    expanded = [token for token in engine.encode(text) for _ in range(16 if token == image else 1)]
    assert np.asarray(inputs["input_ids"]).ravel().tolist() == expanded
