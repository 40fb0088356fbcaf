"""Where images, system prompts and reasoning prompts go in the rendered prompt."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.models.hf.multimodal.media_requests import ask, chat, picture, plain, values, video, write
from tests.models.hf.multimodal.tiny_multimodal import tiny

from assay.core.errors import DatasetError, InvalidOption
from assay.core.records.messages import Message, Part, Prompt, Text
from assay.core.records.responses import Failure, Response
from assay.models.hf import HfModel
from assay.models.hf.preset_models import make_preset_class

pytestmark = pytest.mark.torch
SEEN = "<|vision_start|><|image_pad|><|vision_end|>"


def render_preview(prompt: Prompt, name: str = "", **arguments: Any) -> str:
    kind = make_preset_class(name) if name else HfModel
    text = kind(pretrained=str(tiny("qwen2_5_vl")), **arguments).preview(write(prompt))
    return text.replace(SEEN, "[P]").replace(SEEN.replace("image", "video"), "[V]").replace("<|im_", "<")


def user(text: str) -> str:
    return f"<start|>user\n{text}<end|>\n<start|>assistant\n"


@pytest.mark.parametrize(
    ("parts", "arguments", "text"),
    [
        ((picture(1), "What?"), {}, user("[P]What?")),
        (("A ", picture(1), " b ", picture(2), " c"), {}, user("A [P] b [P] c")),
        ((picture(1), picture(2), "First <image>, then <image>."), {}, user("First [P], then [P].")),
        ((picture(1), "Twice <image><image>"), {}, user("[P]Twice ")),
        ((video(1), "What?"), {}, user("[V]What?")),
        (("Hi ",), {"system_prompt": "Be."}, "<start|>system\nBe.<end|>\n" + user("Hi ")),
        ((picture(1), "What? "), {"reasoning_prompt": "\\nThink."}, user("[P]What?\nThink.")),
        (
            (picture(1), picture(2), "B is <image 2>, A is <image 1>."),
            {"interleave_visuals": True},
            user("B is [P], A is [P]."),
        ),
    ],
)
def test_chats_use_the_template(parts: tuple[Part | str, ...], arguments: Any, text: str) -> None:
    assert render_preview(chat(*parts), **arguments) == text


def test_a_plain_prompt_is_the_concatenation_of_its_parts() -> None:
    assert render_preview(plain(picture(1), "So: ")) == "[P]So: "
    assert render_preview(plain(picture(1), "Look <image> here")) == "Look [P] here"


def test_presets_always_use_the_template_for_media() -> None:
    assert render_preview(plain(picture(1), "So: "), "llava_hf") == user("[P]So: ")
    assert render_preview(plain("So: "), "llava_hf") == "So: "
    assert render_preview(chat(picture(1), "Here <image>"), "qwen2_5_vl") == user("[P]Here ")
    system = "<start|>system\nYou are a helpful assistant.<end|>\n"
    assert render_preview(chat(picture(1), "So"), "qwen3_vl") == system + user("[P]So")
    assert render_preview(chat(picture(1), "So"), "qwen3_vl", system_prompt="") == user("[P]So")


def test_the_system_message_of_the_task_is_not_duplicated() -> None:
    said = (Message("system", (Text("Mine."),)), Message("user", (Text("Hi"),)))
    assert render_preview(Prompt(said, chat=True), system_prompt="Yours.").count("system") == 1


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A checkpoint without a chat template."""
    folder = tmp_path / "bare"
    shutil.copytree(tiny("llava_onevision"), folder)
    (folder / "chat_template.jinja").unlink()
    return folder


def test_a_checkpoint_without_a_template_uses_role_lines(bare: Path) -> None:
    model = HfModel(pretrained=str(bare))
    said = (Message("system", (Text("Be."),)), Message("user", (picture(1), Text("What?"))))
    assert model.preview(write(Prompt(said, chat=True))) == "System: Be.\nUser: <image>\nWhat?\nAssistant:"
    values(ask(model, [write(Prompt(said, chat=True))]))


def test_a_template_with_text_content_gets_placeholders(bare: Path) -> None:
    template = "{% for message in messages %}[{{ message.role }}] {{ message['content'] }}{% endfor %}"
    model = HfModel(pretrained=str(bare), chat_template=template)
    assert model.preview(write(chat(picture(1), "What?"))) == "[user] <image>\nWhat?"
    values(ask(model, [write(chat(picture(1), "What?"))]))


REFUSING = """\
{%- for message in messages -%}
{%- if message.role == 'system' or message.content[-1].text == 'no' -%}{{ raise_exception('not that') }}{%- endif -%}
[{{ message.role }}]{%- for part in message.content -%}
{{ '<image>' if part.type == 'image' else part.text }}{%- endfor -%}{%- endfor -%}"""


def test_a_template_that_rejects_system_messages_gets_none(bare: Path) -> None:
    model = HfModel(pretrained=str(bare), chat_template=REFUSING, system_prompt="Be.")
    assert model.preview(write(chat(picture(1), "So"))) == "[user]<image>So"


def test_a_conversation_that_the_template_rejects_fails_only_itself(bare: Path) -> None:
    model = HfModel(pretrained=str(bare), chat_template=REFUSING, batch_size=2)
    fine, refused = ask(model, [write(chat(picture(1), "So")), write(chat(picture(1), "no"), 1)])
    assert isinstance(fine, Response)
    assert isinstance(refused, Failure) and refused.kind == "bad request" and "not that" in refused.message


def test_unknown_processor_settings_are_an_error() -> None:
    with pytest.raises(InvalidOption, match=r"has no `max_pixels`"):
        HfModel(pretrained=str(tiny("llava_onevision")), max_pixels=1000).preview(write(chat("Hi")))


def test_a_folder_without_a_processor_is_an_error(tmp_path: Path) -> None:
    shutil.copytree(tiny("gemma3"), tmp_path / "half")
    for name in ("preprocessor_config.json", "processor_config.json"):
        (tmp_path / "half" / name).unlink()
    with pytest.raises(DatasetError, match="cannot load the processor of the checkpoint"):
        HfModel(pretrained=str(tmp_path / "half")).preview(write(chat("Hi")))
