"""Kind, templates and identity of a checkpoint, read from its small files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import DatasetError
from assay.models.file_digests import hash_file
from assay.models.hf.loading.checkpoint import Checkpoint


def write(folder: Path, config: dict[str, Any], **files: str) -> Checkpoint:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)
    return Checkpoint(str(folder))


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"model_type": "llama"}, "causal"),
        ({"model_type": "t5"}, "seq2seq"),
        ({"model_type": "new", "is_encoder_decoder": True}, "seq2seq"),
        ({"model_type": "qwen2_vl", "vision_config": {}}, "multimodal"),
        ({"model_type": "whisper", "is_encoder_decoder": True}, "multimodal"),
        ({}, "causal"),
    ],
)
def test_the_kind_is_read_from_the_config(tmp_path: Path, config: dict[str, Any], kind: str) -> None:
    assert write(tmp_path, config).kind == kind


def test_a_chat_template_is_found_in_every_file(tmp_path: Path) -> None:
    assert not write(tmp_path / "a", {}).has_chat_template
    assert write(tmp_path / "b", {}, chat_template__jinja="{{ x }}").has_chat_template
    assert write(tmp_path / "c", {}, tokenizer_config__json='{"chat_template": "x"}').has_chat_template
    assert not write(tmp_path / "d", {}, tokenizer_config__json="{}").has_chat_template


STRICT = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ messages[-1].content }}"
)
LOOSE = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"


def test_system_message_support_is_read_from_the_template(tmp_path: Path) -> None:
    assert write(tmp_path / "a", {}).supports_system_message()
    assert write(tmp_path / "b", {}, chat_template__jinja=LOOSE).supports_system_message()
    strict = write(tmp_path / "c", {}, chat_template__jinja=STRICT, own__jinja=LOOSE)
    assert not strict.supports_system_message()
    assert strict.supports_system_message(LOOSE) and strict.supports_system_message(
        str(tmp_path / "c" / "own.jinja")
    )
    named = [{"name": "default", "template": STRICT}, {"name": "rag", "template": LOOSE}]
    two = write(tmp_path / "d", {}, tokenizer_config__json=json.dumps({"chat_template": named}))
    assert not two.supports_system_message() and two.supports_system_message("rag")
    assert write(
        tmp_path / "e", {}, chat_template__jinja="{{ only_the_tokenizer() }}"
    ).supports_system_message()


def test_the_identity_depends_on_content_not_location(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {"a": 1}, model__safetensors="w", tokenizer__json="t")
    same = write(tmp_path / "two", {"a": 1}, model__safetensors="w", tokenizer__json="t")
    assert one.identify() == same.identify()
    assert set(one.identify()) == {"weights_sha256", "config_sha256", "tokenizer_sha256"}
    other = write(tmp_path / "three", {"a": 1}, model__safetensors="v", tokenizer__json="t")
    assert {key for key in other.identify() if other.identify()[key] != one.identify()[key]} == {
        "weights_sha256"
    }


def test_hashes_of_large_files_are_cached_until_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "home"))
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"a" * (1 << 20))
    first = hash_file(weights)
    (note,) = (tmp_path / "home" / "model-digests").iterdir()
    note.write_text(note.read_text().replace(first, "remembered"))
    assert hash_file(weights) == "remembered"
    weights.write_bytes(b"b" * (1 << 20))
    assert hash_file(weights) not in (first, "remembered")


def test_hashing_works_without_a_writable_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").write_text("a file where a folder should be")
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "home"))
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"a" * (1 << 20))
    assert len(hash_file(weights)) == 64


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="model folder not found"):
        _ = Checkpoint(str(tmp_path / "nowhere")).config
    with pytest.raises(DatasetError, match=r"no config\.json"):
        _ = Checkpoint(str(tmp_path)).kind
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DatasetError, match="not JSON"):
        _ = Checkpoint(str(tmp_path)).kind


def test_the_name_is_the_last_part_of_the_folder_or_the_repository(tmp_path: Path) -> None:
    assert write(tmp_path / "my-model", {}).name == "my-model"
    assert Checkpoint("org/model").name == "org/model"
