"""The header of a GGUF file, read without loading the model."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import DatasetError
from assay.models.llamacpp.gguf import read_header

FACTS: dict[str, tuple[int, Any]] = {
    "general.architecture": (8, "llama"),
    "llama.context_length": (4, 2048),
    "llama.rope.freq_base": (6, 10000.0),
    "tokenizer.ggml.tokens": (9, (8, [f"token {number}" for number in range(2000)] + ["<s>", "</s>"])),
    "tokenizer.ggml.scores": (9, (6, [0.5] * 2002)),
    "general.tags": (9, (8, ["small", "kind"])),
    "tokenizer.ggml.bos_token_id": (4, 2000),
    "tokenizer.ggml.eos_token_id": (4, 2001),
    "tokenizer.ggml.add_bos_token": (7, True),
    "tokenizer.chat_template": (8, "{{ messages[0].content }} – ok"),
    "tokenizer.chat_template.tool_use": (8, "{{ tools }}"),
}
_FORMS = {4: "<I", 6: "<f", 7: "<?"}


def pack_value(kind: int, value: Any) -> bytes:
    if kind == 8:
        data = value.encode()
        return struct.pack("<Q", len(data)) + bytes(data)
    if kind == 9:
        inner, values = value
        return struct.pack("<IQ", inner, len(values)) + b"".join(pack_value(inner, one) for one in values)
    return struct.pack(_FORMS[kind], value)


def gguf(facts: dict[str, tuple[int, Any]], version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, 0, len(facts))
    return head + b"".join(
        pack_value(8, name) + struct.pack("<I", kind) + pack_value(kind, value)
        for name, (kind, value) in facts.items()
    )


def test_metadata_context_length_template_and_special_tokens_are_read(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf(FACTS))
    header = read_header(path)
    assert header.context_length == 2048
    assert header.chat_template == "{{ messages[0].content }} – ok"
    assert header.named_templates == {"tool_use": "{{ tools }}"}
    assert header.find_token("bos") == (2000, "<s>")
    assert header.find_token("eos") == (2001, "</s>")
    assert header.metadata["general.tags"] == ["small", "kind"]
    assert header.metadata["tokenizer.ggml.add_bos_token"] is True


def test_a_file_without_metadata_has_no_template_and_no_tokens(tmp_path: Path) -> None:
    path = tmp_path / "bare.gguf"
    path.write_bytes(gguf({}))
    header = read_header(path)
    assert (header.context_length, header.chat_template, header.find_token("bos")) == (None, "", (None, ""))


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf({"tokenizer.chat_template": (8, "one")}))
    assert read_header(path).chat_template == "one"
    path.write_bytes(gguf({"tokenizer.chat_template": (8, "two")}))
    os.utime(path, (1, 1))
    assert read_header(path).chat_template == "two"


WHOLE = gguf(FACTS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not start with `GGUF`"),
        (b"PK\x03\x04 a zip file", "does not start with `GGUF`"),
        (gguf({}, version=1), "version 1"),
        (WHOLE[: len(WHOLE) // 2], "invalid GGUF file"),
        (WHOLE[:20], "invalid GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "too many metadata entries"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**60), "text too long"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + pack_value(8, "a") + struct.pack("<I", 77), "type 77"),
    ],
)
def test_an_invalid_file_is_an_error_with_a_reason(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=message) as caught:
        read_header(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_a_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="No such file"):
        read_header(tmp_path / "nowhere.gguf")
    with pytest.raises(DatasetError, match="a folder"):
        read_header(tmp_path)
