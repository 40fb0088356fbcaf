"""The base classes of lm-eval's model classes, for classes that need nothing else of the package."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, Self

from assay.core.options.parsing import parse_arguments

__all__ = ["LM", "CacheHook", "CachingLM", "TemplateLM"]


class CacheHook:
    """Receives each result of a model as soon as it is known."""

    def __init__(self, cachinglm: Any = None) -> None:
        self.dbdict = None

    def add_partial(self, attr: str, req: Any, res: Any) -> None:
        """Receive the result of one request."""


class LM(abc.ABC):
    """A model: three methods that take lists of `Instance` and return one value for each."""

    def __init__(self) -> None:
        self._rank = 0
        self._world_size = 1
        self._device: Any = None
        self.cache_hook: Any = CacheHook(None)

    @abc.abstractmethod
    def loglikelihood(self, requests: Any) -> Any: ...

    @abc.abstractmethod
    def loglikelihood_rolling(self, requests: Any) -> Any: ...

    @abc.abstractmethod
    def generate_until(self, requests: Any) -> Any: ...

    def apply_chat_template(self, chat_history: Any, add_generation_prompt: bool = True) -> str:
        raise NotImplementedError("the model has no chat template: implement `apply_chat_template`")

    @classmethod
    def create_from_arg_string(
        cls, arg_string: str, additional_config: Mapping[str, Any] | None = None
    ) -> Self:
        """Create the model from `key=value,key=value`."""
        return cls.create_from_arg_obj(parse_arguments(arg_string), additional_config)

    @classmethod
    def create_from_arg_obj(
        cls, arg_dict: Mapping[str, Any], additional_config: Mapping[str, Any] | None = None
    ) -> Self:
        """Create the model from its arguments and those of the command line that are set."""
        common = {key: value for key, value in (additional_config or {}).items() if value is not None}
        return cls(**arg_dict, **common)

    @property
    def device(self) -> Any:
        return self._device

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def world_size(self) -> int:
        return self._world_size

    def all_gather(self, tensor: Any) -> Any:
        return tensor

    def gather_object(self, obj: Any, dst: int = 0) -> Any:
        return [obj]

    def barrier(self) -> None:
        """Return at once: there is one process."""
        return

    @property
    def tokenizer_name(self) -> str:
        raise NotImplementedError("the model has no chat template: implement `tokenizer_name`")

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return ""

    def set_cache_hook(self, cache_hook: Any) -> None:
        self.cache_hook = cache_hook


class TemplateLM(LM):
    """A model that scores tokens: it encodes text, this class splits contexts from continuations."""

    tokenizer: Any = None
    backend = "causal"

    @property
    @abc.abstractmethod
    def eot_token_id(self) -> int: ...

    @property
    def prefix_token_id(self) -> int:
        """The token before a continuation without a context."""
        return self.eot_token_id

    @abc.abstractmethod
    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]: ...

    @abc.abstractmethod
    def _loglikelihood_tokens(self, requests: Any, **kwargs: Any) -> Any: ...

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Encode a context and its continuation. Spaces at the end of the context belong to the continuation."""
        kept = context.rstrip()
        continuation = context[len(kept) :] + continuation
        encoded = self.tok_encode(kept)
        if self.backend == "causal":
            return encoded, self.tok_encode(kept + continuation)[len(encoded) :]
        return encoded, self.tok_encode(continuation, add_special_tokens=False)

    def _encode_request(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        if context:
            return self._encode_pair(context, continuation)
        encoded = self.tok_encode(continuation, add_special_tokens=False)
        if encoded[0] == self.prefix_token_id:
            return encoded[:1], encoded[1:]
        return [self.prefix_token_id], encoded

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> Any:
        """Encode the requests and score their tokens."""
        pairs = [request.args for request in requests]
        encoded = [(pair, *self._encode_request(*pair)) for pair in pairs]
        return self._loglikelihood_tokens(encoded, disable_tqdm=disable_tqdm)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Return the template of the tokenizer: its only one, the one named, or `default`."""
        if self.tokenizer is None:
            return ""
        if not chat_template:
            return None
        templates = getattr(self.tokenizer, "chat_template", None)
        if not isinstance(templates, dict):
            return templates
        name = chat_template if isinstance(chat_template, str) else "default"
        if name not in templates:
            raise ValueError(
                f"no chat template is called `{name}`; available: {', '.join(sorted(templates))}"
            )
        return str(templates[name])


class CachingLM:
    """A model without a second cache: responses are stored in the run and in Assay's response cache."""

    def __init__(self, lm: Any, cache_db: str) -> None:
        self.lm = lm
        self.cache_db = cache_db

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)

    def get_cache_hook(self) -> CacheHook:
        return CacheHook(self)
