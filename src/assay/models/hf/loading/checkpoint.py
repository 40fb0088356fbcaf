"""The files of a model: where they are, what kind of model they hold, and what they are by content.

Reads the small files only (config, templates); nothing here imports torch or transformers. Hashing the weights is left
to `identify`, and what was hashed once is remembered by path, size and time of change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from assay.core.errors import DatasetError, MissingPackage
from assay.models.file_digests import folder_digest

__all__ = ["Checkpoint", "Kind"]

Kind = Literal["causal", "seq2seq", "multimodal"]

_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
_TOKENIZER = ("tokenizer*", "*.model", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json")
_CONFIG = ("config.json", "adapter_config.json", "generation_config.json", "*.py")
_TEMPLATES = ("chat_template*",)
_PROCESSOR = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")

_SENSES = (
    "vision_config",
    "audio_config",
    "vision_tower",
    "image_token_id",
    "image_token_index",
    "audio_token_id",
    "thinker_config",
)
"""Keys of a config that only models with eyes or ears have."""

_ENCODER_DECODERS = frozenset(
    "bart bigbird_pegasus blenderbot blenderbot-small encoder-decoder led longt5 m2m_100 marian mbart mt5 mvp nllb-moe "
    "pegasus pegasus_x plbart prophetnet switch_transformers t5 t5gemma t5gemma2 umt5 xlm-prophetnet".split()
)
_HEARS = frozenset({"whisper", "speech_to_text", "moonshine", "seamless_m4t", "seamless_m4t_v2"})


@dataclass(frozen=True)
class Checkpoint:
    """A folder, or a repository on the hub at a revision."""

    source: str
    revision: str = "main"
    subfolder: str = ""
    trusted: bool = False

    @property
    def is_local(self) -> bool:
        return Path(self.source).is_dir()

    @property
    def name(self) -> str:
        """What people call it: the repository, or the last part of the folder."""
        return (Path(self.source).resolve().name or "model") if self.is_local else self.source

    @cached_property
    def folder(self) -> Path:
        """Where the small files are; those of a repository are fetched.

        Raises:
            DatasetError: There is no such folder, and no such repository can be had.
        """
        path = Path(self.source)
        if not path.is_dir():
            if path.is_absolute() or self.source.startswith("."):
                raise DatasetError(
                    f"there is no model folder `{self.source}`", where="--model_args pretrained"
                )
            path = self._fetched()
        path = path / self.subfolder if self.subfolder else path
        if not path.is_dir():
            raise DatasetError(f"the model has no folder `{self.subfolder}`", where=self.source)
        return path

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """What `config.json` says; empty for a folder that only holds GGUF files."""
        path = self.folder / "config.json"
        if not path.is_file():
            if any(self.folder.glob("*.gguf")):
                return {}
            raise DatasetError("the model folder has no config.json", where=str(self.folder))
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DatasetError(f"config.json is not JSON: {error}", where=str(path)) from None
        if not isinstance(found, dict):
            raise DatasetError("config.json is not a mapping", where=str(path))
        return found

    @property
    def kind(self) -> Kind:
        """What the config says it is; a model that sees or hears is `multimodal`."""
        config = self.config
        model_type = str(config.get("model_type", ""))
        if model_type in _HEARS or any(config.get(key) is not None for key in _SENSES):
            return "multimodal"
        if model_type in _ENCODER_DECODERS or config.get("is_encoder_decoder") is True:
            return "seq2seq"
        return "causal"

    @property
    def has_template(self) -> bool:
        """Whether it says how a conversation is written."""
        if any(self.folder.glob("chat_template*")) or any(self.folder.glob("*.gguf")):
            return True
        path = self.folder / "tokenizer_config.json"
        try:
            return bool(json.loads(path.read_text(encoding="utf-8")).get("chat_template"))
        except (OSError, ValueError, AttributeError):
            return False

    def takes_system(self, asked: str | None = None) -> bool:
        """Whether a system message comes through the chat template; True where that cannot be told from the files.

        `asked`: another template than the checkpoint's own, by name, as a file or written out.
        """
        from assay.models.tokens.chat_template import takes_system

        source = self._templates.get("default") if not asked else self._templates.get(asked, asked)
        if source and "{" not in source and Path(source).is_file():
            source = Path(source).read_text(encoding="utf-8")
        return not source or takes_system(source)

    @cached_property
    def _templates(self) -> dict[str, str]:
        """The chat templates in its small files by name; the one without a name is `default`."""
        found: dict[str, str] = {}
        for name in ("tokenizer_config.json", "chat_template.json"):
            try:
                said = json.loads((self.folder / name).read_text(encoding="utf-8")).get("chat_template")
            except (OSError, ValueError, AttributeError):
                continue
            if isinstance(said, str):
                found["default"] = said
            elif isinstance(said, list):
                found |= {
                    str(one.get("name")): str(one.get("template")) for one in said if isinstance(one, dict)
                }
        for path in self.folder.glob("additional_chat_templates/*.jinja"):
            found[path.stem] = path.read_text(encoding="utf-8")
        if (path := self.folder / "chat_template.jinja").is_file():
            found["default"] = path.read_text(encoding="utf-8")
        return found

    def identify(self) -> dict[str, str]:
        """What the files are: hashes of their content, or the commit of a repository."""
        if not self.is_local:
            return {"repository": self.source, "commit": self._commit()}
        parts = {
            "weights": _WEIGHTS,
            "config": _CONFIG,
            "tokenizer": _TOKENIZER,
            "template": _TEMPLATES,
            "processor": _PROCESSOR,
        }
        found = {f"{name}_sha256": folder_digest(self.folder, patterns) for name, patterns in parts.items()}
        return {name: digest for name, digest in found.items() if digest}

    def _commit(self) -> str:
        """The commit in the path of a snapshot, which is how the hub's cache is laid out."""
        parts = self.folder.parts
        return parts[parts.index("snapshots") + 1] if "snapshots" in parts[:-1] else self.revision

    def _fetched(self) -> Path:
        try:
            from huggingface_hub import snapshot_download
            from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
        except ImportError:
            raise MissingPackage.of(
                "huggingface_hub", "the model `hf`", extra="hf", where="--model"
            ) from None
        small = ["*.json", "*.jinja", "*.txt", "*.model", "*.py"]
        try:
            return Path(snapshot_download(self.source, revision=self.revision, allow_patterns=small))
        except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError, ValueError) as error:
            first = (str(error) or type(error).__name__).splitlines()[0]
            raise DatasetError(
                f"the model `{self.source}` is no folder, and the hub does not give it: {first}",
                where="--model_args pretrained",
                hint="give the path of a model folder, or a name on the hub; private models need HF_TOKEN",
            ) from None
