"""The files of a checkpoint: where they are, what kind of model they contain, and their hashes; or what a script loaded.

Reads only the small files (config, templates) and imports neither torch nor transformers. `identify` hashes the weights
and caches the hashes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from assay.core.errors import DatasetError, MissingPackage
from assay.models.file_digests import hash_folder
from assay.models.hf.loading.loaded_objects import identify_model, identify_tokenizer

__all__ = ["Checkpoint", "CheckpointKind"]

CheckpointKind = Literal["causal", "seq2seq", "multimodal"]

_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
_TOKENIZER = ("tokenizer*", "*.model", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json")
_CONFIG = ("config.json", "adapter_config.json", "generation_config.json", "*.py")
_TEMPLATES = ("chat_template*",)
_PROCESSOR = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")

_MEDIA_CONFIG_KEYS = (
    "vision_config",
    "audio_config",
    "vision_tower",
    "image_token_id",
    "image_token_index",
    "audio_token_id",
    "thinker_config",
)
"""Config keys of models that read images or audio."""

_ENCODER_DECODERS = frozenset(
    "bart bigbird_pegasus blenderbot blenderbot-small encoder-decoder led longt5 m2m_100 marian mbart mt5 mvp nllb-moe "
    "pegasus pegasus_x plbart prophetnet switch_transformers t5 t5gemma t5gemma2 umt5 xlm-prophetnet".split()
)
_SPEECH_MODEL_TYPES = frozenset({"whisper", "speech_to_text", "moonshine", "seamless_m4t", "seamless_m4t_v2"})


@dataclass(frozen=True)
class Checkpoint:
    """A folder, or a repository on the hub at a revision. A script may have loaded the model, the tokenizer or both."""

    source: str
    revision: str = "main"
    subfolder: str = ""
    model: Any = field(default=None, compare=False)
    """The loaded model; None if it is to be loaded from the files."""

    tokenizer: Any = field(default=None, compare=False)
    """The loaded tokenizer; None if it is to be loaded from the files."""

    @property
    def is_local(self) -> bool:
        return Path(self.source).is_dir()

    @property
    def name(self) -> str:
        """The repository name, or the name of the folder."""
        return (Path(self.source).resolve().name or "model") if self.is_local else self.source

    @cached_property
    def folder(self) -> Path:
        """The folder of the small files; those of a repository are downloaded.

        Raises:
            DatasetError: There is no such folder, and the repository cannot be downloaded.
        """
        path = Path(self.source)
        if not path.is_dir():
            if path.is_absolute() or self.source.startswith("."):
                raise DatasetError(
                    f"model folder not found: `{self.source}`", where="--model_args pretrained"
                )
            path = self._download_small_files()
        path = path / self.subfolder if self.subfolder else path
        if not path.is_dir():
            raise DatasetError(f"the model has no folder `{self.subfolder}`", where=self.source)
        return path

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The content of `config.json`; empty for a folder with only GGUF files."""
        if self.model is not None:
            dtype = str(next(self.model.parameters()).dtype).removeprefix("torch.")
            return {**self.model.config.to_dict(), "dtype": dtype}
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
    def kind(self) -> CheckpointKind:
        """The kind of model according to the config; `multimodal` if it reads images or audio."""
        config = self.config
        model_type = str(config.get("model_type", ""))
        if self.model is not None:  # a script that loads a model asks it texts
            return "seq2seq" if config.get("is_encoder_decoder") else "causal"
        if model_type in _SPEECH_MODEL_TYPES or any(
            config.get(key) is not None for key in _MEDIA_CONFIG_KEYS
        ):
            return "multimodal"
        if model_type in _ENCODER_DECODERS or config.get("is_encoder_decoder") is True:
            return "seq2seq"
        return "causal"

    @property
    def has_chat_template(self) -> bool:
        """Whether the checkpoint contains a chat template."""
        if self.tokenizer is not None:
            return bool(self._templates)
        if any(self.folder.glob("chat_template*")) or any(self.folder.glob("*.gguf")):
            return True
        path = self.folder / "tokenizer_config.json"
        try:
            return bool(json.loads(path.read_text(encoding="utf-8")).get("chat_template"))
        except (OSError, ValueError, AttributeError):
            return False

    def supports_system_message(self, template: str | None = None) -> bool:
        """Return whether the chat template renders system messages; True if the files do not tell.

        `template`: use this template instead of the checkpoint's own: a name, a file, or template text.
        """
        from assay.models.tokens.chat_template import supports_system_message

        source = self.find_template(template)
        return not source or supports_system_message(source)

    def find_template(self, template: str | None = None, *, tools: bool = False) -> str:
        """Return the chat template; empty if the files have none. With `tools`, a template for tools if there is one."""
        name = template or ("tool_use" if tools and "tool_use" in self._templates else "default")
        source = self._templates.get(name, template or "")
        if source and "{" not in source and Path(source).is_file():
            source = Path(source).read_text(encoding="utf-8")
        return source

    @cached_property
    def _templates(self) -> dict[str, str]:
        """The chat templates of the checkpoint by name; the unnamed one is `default`."""
        if self.tokenizer is not None:
            own = getattr(self.tokenizer, "chat_template", None) or {}
            return dict(own) if isinstance(own, Mapping) else {"default": own}
        found: dict[str, str] = {}
        for name in ("tokenizer_config.json", "chat_template.json"):
            try:
                found_template = json.loads((self.folder / name).read_text(encoding="utf-8")).get(
                    "chat_template"
                )
            except (OSError, ValueError, AttributeError):
                continue
            if isinstance(found_template, str):
                found["default"] = found_template
            elif isinstance(found_template, list):
                found |= {
                    str(one.get("name")): str(one.get("template"))
                    for one in found_template
                    if isinstance(one, dict)
                }
        for path in self.folder.glob("additional_chat_templates/*.jinja"):
            found[path.stem] = path.read_text(encoding="utf-8")
        if (path := self.folder / "chat_template.jinja").is_file():
            found["default"] = path.read_text(encoding="utf-8")
        return found

    def identify(self) -> dict[str, str]:
        """Return hashes of the files, or the commit of a repository; of loaded objects, hashes of their contents."""
        given = {} if self.tokenizer is None else identify_tokenizer(self.tokenizer)
        return (
            {**self._identify_files(), **given}
            if self.model is None
            else {**identify_model(self.model), **given}
        )

    def _identify_files(self) -> dict[str, str]:
        if not self.is_local:
            return {"repository": self.source, "commit": self._find_commit()}
        parts = {
            "weights": _WEIGHTS,
            "config": _CONFIG,
            "tokenizer": _TOKENIZER,
            "template": _TEMPLATES,
            "processor": _PROCESSOR,
        }
        found = {f"{name}_sha256": hash_folder(self.folder, patterns) for name, patterns in parts.items()}
        return {name: digest for name, digest in found.items() if digest}

    def _find_commit(self) -> str:
        """Return the commit from the snapshot path in the cache of the hub."""
        parts = self.folder.parts
        return parts[parts.index("snapshots") + 1] if "snapshots" in parts[:-1] else self.revision

    def _download_small_files(self) -> Path:
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
                f"model not found: `{self.source}` is not a folder and cannot be downloaded: {first}",
                where="--model_args pretrained",
                hint="pass a model folder or a model name on the hub; private models need HF_TOKEN",
            ) from None
