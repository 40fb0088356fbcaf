"""The parts of the vLLM adapter that work without vLLM: name, abilities, identity, preview, errors."""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.models.hf.tiny_checkpoints import tiny_checkpoint

from assay.core.errors import InvalidOption, MissingPackage, UnsupportedRequest
from assay.core.installation import format_install_command
from assay.core.records.messages import Image, Message, Prompt, Text
from assay.core.records.requests import Generate, Settings
from assay.models import MODELS, make_model
from assay.models.embedded.adapter import SHIPPED_WEIGHTS
from assay.models.vllm import VllmChatModel, VllmGenerateModel, VllmModel
from assay.models.vllm.engine import select_known_arguments
from assay.models.vllm.media import fit_size

WITHOUT_VLLM = pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The small files of a text model; its weights are never read."""
    made = tmp_path / "small"
    made.mkdir()
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16"}
    (made / "config.json").write_text(json.dumps(config))
    (made / "model.safetensors").write_bytes(b"weights")
    return made


def test_it_is_registered_under_all_its_names() -> None:
    assert {MODELS.get(name) for name in ("vllm", "vllm-vlm")} == {VllmModel}
    assert (MODELS.get("vllm_chat"), MODELS.get("vllm_generate")) == (VllmChatModel, VllmGenerateModel)


def test_name_and_abilities_are_read_from_the_folder(folder: Path) -> None:
    model = VllmModel(pretrained=str(folder))
    assert model.name == "small"
    assert model.traits.abilities == {"generate", "likelihood", "rolling"}
    assert model.traits.window * model.traits.in_flight >= 256


def test_a_chat_template_enables_chat(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert "chat" in VllmModel(pretrained=str(folder)).traits.abilities


def test_a_vision_checkpoint_reads_images() -> None:
    model = VllmModel(pretrained=str(SHIPPED_WEIGHTS))
    assert model.traits.abilities == {"generate", "likelihood", "rolling", "chat", "image", "video"}


def test_a_speech_model_is_not_supported(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "whisper"}')
    with pytest.raises(UnsupportedRequest, match="only transcribes speech") as caught:
        _ = VllmModel(pretrained=str(folder)).traits
    assert "--model hf" in caught.value.hint


@pytest.mark.torch
def test_the_preview_shows_image_placeholders() -> None:
    picture = Image(digest="red", load=lambda: None)
    prompt = Prompt((Message("user", (picture, Text("What color is it?"))),), chat=True)
    request = Generate(task="t", document=0, prompt=prompt, settings=Settings({}))
    shown = VllmModel(pretrained=str(SHIPPED_WEIGHTS)).preview(request)
    assert shown == "<s><|user|><image>\nWhat color is it?</s><|assistant|>"


def test_thinking_disables_likelihoods(folder: Path) -> None:
    thinking = VllmModel(pretrained=str(folder), enable_thinking=True, think_end_token="</think>")
    assert thinking.traits.abilities == {"generate"}


@WITHOUT_VLLM
def test_a_missing_vllm_has_an_install_hint(folder: Path) -> None:
    model = VllmModel(pretrained=str(folder))
    for call in (model.identify, model.open):
        with pytest.raises(MissingPackage, match="needs the package `vllm`") as caught:
            asyncio.run(call())
        assert format_install_command("vllm") in caught.value.hint and "without a GPU" in caught.value.hint


def test_its_files_are_its_identity(folder: Path) -> None:
    before = VllmModel(pretrained=str(folder)).identify_files()
    assert "weights_sha256" in before and before == VllmModel(pretrained=str(folder)).identify_files()
    (folder / "model.safetensors").write_bytes(b"others!")
    assert VllmModel(pretrained=str(folder)).identify_files()["weights_sha256"] != before["weights_sha256"]
    template = VllmModel(pretrained=str(folder), chat_template="{{ messages }}").identify_files()
    assert template["chat_template"] and "chat_template" not in before


def test_the_dtype_auto_names_the_dtype_of_the_checkpoint(folder: Path) -> None:
    assert VllmModel(pretrained=str(folder)).describe_dtype() == "auto (bfloat16)"
    assert VllmModel(pretrained=str(folder), dtype="float32").describe_dtype() == "float32"


def test_an_unknown_argument_gets_a_suggestion() -> None:
    with pytest.raises(InvalidOption, match="`tensor_paralel_size`") as caught:
        select_known_arguments({"model": "x", "tensor_paralel_size": 2}, ["model", "tensor_parallel_size"])
    assert "tensor_parallel_size" in caught.value.hint


def test_removed_arguments_are_ignored() -> None:
    assert select_known_arguments({"model": "x", "swap_space": 4}, ["model"]) == {"model": "x"}
    assert select_known_arguments({"model": "x", "swap_space": 4}, ["model", "swap_space"]) == {
        "model": "x",
        "swap_space": 4,
    }


def test_the_command_line_reaches_it() -> None:
    arguments = {"pretrained": "some/model", "tensor_parallel_size": 2}
    model = make_model("vllm", arguments, batch_size=1, device="cpu")
    assert model.name == "some/model"


@pytest.mark.torch
def test_the_preview_is_what_the_model_reads() -> None:
    chat = Prompt((Message("system", (Text("Be brief."),)), Message("user", (Text("Hi"),))), chat=True)
    request = Generate(task="t", document=0, prompt=chat, settings=Settings({}))
    model = VllmModel(pretrained=str(tiny_checkpoint("llama")))
    assert model.preview(request) == "<s>[system]Be brief.</s>\n[user]Hi</s>\n[assistant]"


@pytest.mark.parametrize(
    ("size", "bounds", "made"),
    [
        ((640, 480), (None, None, None), (640, 480)),
        ((640, 480), (320, 100, None), (133, 100)),
        ((640, 480), (1000, None, None), (640, 480)),
        ((640, 480), (None, 240, None), (320, 240)),
        ((480, 640), (None, None, 64), (48, 64)),
        ((9000, 3), (None, None, 100), (100, 1)),
    ],
)
def test_images_shrink_to_fit_and_never_grow(
    size: tuple[int, int], bounds: tuple[int | None, int | None, int | None], made: tuple[int, int]
) -> None:
    assert fit_size(size, *bounds) == made
