"""The base class of lmms-eval's model classes, for classes that need nothing else of the package."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from assay.core.options.parsing import parse_arguments
from assay_compat.models.lm_eval_bases import CacheHook

__all__ = ["CacheHook", "lmms"]


class lmms(abc.ABC):  # noqa: N801 - the name of lmms-eval
    """A multimodal model. With `is_simple`, requests hold a text and `doc_to_visual`, otherwise `doc_to_messages`."""

    is_simple: ClassVar[bool] = True

    def __init__(self) -> None:
        self._rank = 0
        self._world_size = 1
        self.cache_hook: Any = CacheHook(None)
        self.task_dict: Any = {}

    @abc.abstractmethod
    def loglikelihood(self, requests: Any) -> Any: ...

    @abc.abstractmethod
    def generate_until(self, requests: Any) -> Any: ...

    @abc.abstractmethod
    def generate_until_multi_round(self, requests: Any) -> Any: ...

    def generate_visual_cot(self, requests: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no `generate_visual_cot`")

    @staticmethod
    def _resolve_system_prompt(value: str) -> str:
        return Path(value).read_text("utf-8").strip() if value and Path(value).is_file() else value

    def _apply_system_prompt(self, messages: list[Any], system_prompt: str) -> list[Any]:
        """Put a system message before a conversation, or replace its text."""
        if not system_prompt:
            return messages
        plain = any(isinstance(message.get("content"), str) for message in messages)
        content: Any = system_prompt if plain else [{"type": "text", "text": system_prompt}]
        if messages and messages[0].get("role") == "system":
            messages[0]["content"] = content
        else:
            messages.insert(0, {"role": "system", "content": content})
        return messages

    @classmethod
    def create_from_arg_string(
        cls, arg_string: str, additional_config: Mapping[str, Any] | None = None
    ) -> Self:
        """Create the model from `key=value,key=value` and the options of the command line that are set."""
        common = {key: value for key, value in (additional_config or {}).items() if value is not None}
        return cls(**parse_arguments(arg_string), **common)

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def world_size(self) -> int:
        return self._world_size

    def set_cache_hook(self, cache_hook: Any) -> None:
        self.cache_hook = cache_hook

    def clean(self) -> None:
        """Return at once: the process releases the model."""
        return
