"""The model names of lmms-eval select `HfModel` with a preset."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.models.hf.multimodal.tiny_multimodal import tiny

from assay.core.errors import InvalidOption
from assay.models import MODELS, make_model
from assay.models.hf import HfModel
from assay.models.hf.preset_models import make_preset_class
from assay.models.presets import PRESETS


def test_every_preset_is_a_registered_subclass_of_hf() -> None:
    registered = {name for name in MODELS.names() if name in PRESETS}
    assert registered == set(PRESETS)
    for name in PRESETS:
        kind = MODELS.get(name)
        assert isinstance(kind, type) and issubclass(kind, HfModel)
        assert kind is make_preset_class(name) and kind.preset == PRESETS[name]


def test_every_preset_is_in_the_documentation_with_its_defaults() -> None:
    page = (Path(__file__).parents[2] / "docs" / "coming-from" / "lmms-eval.md").read_text("utf-8")
    table = page.partition("| name | default checkpoint |")[2].partition("\n\n")[0]
    lines = table.splitlines()[2:]
    for name, preset in PRESETS.items():
        if name.endswith("_chat"):
            assert f"`{name}`" in page
            continue
        [line] = [line for line in lines if f"`{name}`" in line.split("|")[1]]
        assert f"`{preset.pretrained}`" in line and f"| {preset.max_new_tokens} |" in line
        assert "video" not in preset.media or f"| {preset.frames} |" in line


def test_a_preset_has_the_default_checkpoint_of_lmms_eval() -> None:
    assert make_model("qwen2_5_vl", {}).name == "Qwen/Qwen2.5-VL-3B-Instruct"
    assert make_model("llava_onevision", {}).name == "llava-hf/llava-onevision-qwen2-7b-ov-hf"


def test_arguments_of_the_original_llava_code_are_an_error() -> None:
    with pytest.raises(InvalidOption, match="`conv_template` belongs to the original LLaVA code") as error:
        make_model("llava_onevision", {"pretrained": "x/y", "conv_template": "qwen_1_5"})
    assert "format of transformers" in str(error.value)


@pytest.mark.parametrize(
    "argument", ["max_num_frames=0", "fps=-1", "max_pixels=many", "use_cache=perhaps", "interleave_visuals=2"]
)
def test_an_invalid_value_is_an_error(argument: str) -> None:
    key, _, value = argument.partition("=")
    with pytest.raises(InvalidOption, match=f"argument `{key}` of `qwen2_5_vl`"):
        make_model("qwen2_5_vl", {"pretrained": "x/y", key: value})


def test_an_unknown_argument_gets_a_suggestion() -> None:
    with pytest.raises(InvalidOption, match="unknown argument `max_pixel` of the model `qwen2_5_vl`"):
        make_model("qwen2_5_vl", {"pretrained": "x/y", "max_pixel": 3})


@pytest.mark.torch
def test_media_arguments_are_an_error_for_text_models() -> None:
    from tests.models.hf.tiny_checkpoints import tiny_checkpoint

    model = make_model("hf", {"pretrained": str(tiny_checkpoint("llama")), "max_pixels": 1000})
    with pytest.raises(InvalidOption, match=r"text-only model and does not use `processor\.max_pixels`"):
        _ = model.traits


@pytest.mark.torch
def test_the_traits_of_a_preset_come_from_its_checkpoint() -> None:
    traits = make_model("whisper", {"pretrained": str(tiny("whisper"))}).traits
    assert traits.abilities == {"generate", "chat", "audio"} and traits.needs == {"audio"}
    assert "audio" not in make_model("qwen2_5_vl", {"pretrained": str(tiny("qwen2_5_vl"))}).traits.abilities
