"""`LocalCompletionsAPI` and `LocalChatCompletion` of lm-eval, for subclasses of users that do not have its package."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from assay_compat.models.lm_eval_api_bases import TemplateAPI
from assay_compat.models.request_batching import handle_stop_sequences, postprocess_generated_text

__all__ = ["LocalChatCompletion", "LocalCompletionsAPI"]

_MAX_STOPS = 4
"""What chat completions of OpenAI accept."""


class LocalCompletionsAPI(TemplateAPI):
    """A server with `/v1/completions`. Without the package, `tokenizer_backend=auto` is `huggingface`."""

    def __init__(
        self, base_url: str | None = None, tokenizer_backend: str | None = "auto", **kwargs: Any
    ) -> None:
        backend = "huggingface" if tokenizer_backend == "auto" else tokenizer_backend
        super().__init__(base_url=base_url, tokenizer_backend=backend, **kwargs)

    @cached_property
    def api_key(self) -> str:
        """The key in `OPENAI_API_KEY`."""
        return os.environ.get("OPENAI_API_KEY", "")

    def _create_payload(
        self,
        messages: Any,
        *,
        generate: bool = False,
        gen_kwargs: dict[str, Any] | None = None,
        seed: int = 1234,
        eos: str | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        if generate:
            settings = self._build_settings(gen_kwargs, eos)
            return {"prompt": messages, "model": self.model, "seed": seed, **settings}
        return {
            "prompt": messages,
            "model": self.model,
            "seed": seed,
            "temperature": 0,
            "max_tokens": 1,
            "logprobs": 1,
            "echo": True,
        }

    def _build_settings(self, gen_kwargs: Mapping[str, Any] | None, eos: str | None) -> dict[str, Any]:
        """Return the generation settings of a task as fields of the API."""
        fields = dict(gen_kwargs or {})
        fields.pop("do_sample", None)
        limit = fields.pop("max_gen_toks", self._max_gen_toks)
        stop = handle_stop_sequences(fields.pop("until", None), eos)
        return {"max_tokens": limit, "temperature": 0, "stop": stop, **fields}

    @staticmethod
    def parse_logprobs(
        outputs: Any, tokens: list[list[int]] | None = None, ctxlens: list[int] | None = None, **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """Return the log probability of each continuation, and whether it is the greedy one. The last token was generated."""
        read = []
        for output in _as_list(outputs):
            for choice, start in zip(_sort_choices(output), ctxlens or (), strict=False):
                if start < 1:
                    raise ValueError("a log-likelihood needs a context of at least one token")
                values = choice["logprobs"]["token_logprobs"][start:-1]
                best = [max(top.values()) for top in choice["logprobs"]["top_logprobs"][start:-1]]
                read.append((sum(values), values == best))
        return read

    @staticmethod
    def parse_generations(outputs: Any, **kwargs: Any) -> list[str]:
        """Return the texts of all choices."""
        return [choice["text"] for output in _as_list(outputs) for choice in _sort_choices(output)]


class LocalChatCompletion(LocalCompletionsAPI):
    """A server with `/v1/chat/completions`: one chat per call, no log-likelihoods."""

    def __init__(
        self,
        base_url: str | None = None,
        tokenizer_backend: str | None = None,
        tokenized_requests: bool | None = None,
        think_end_token: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            base_url=base_url,
            tokenizer_backend=tokenizer_backend,
            tokenized_requests=bool(tokenized_requests),
            **kwargs,
        )
        self.think_end_token = think_end_token
        self._batch_size = 1

    def _create_payload(
        self,
        messages: Any,
        *,
        generate: bool = False,
        gen_kwargs: dict[str, Any] | None = None,
        seed: int = 1234,
        eos: str | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        if not isinstance(messages, list) or not all(isinstance(one, Mapping) for one in messages):
            raise ValueError("chat completions need messages: pass --apply_chat_template")
        settings = self._build_settings(gen_kwargs, eos)
        settings["stop"] = settings["stop"][:_MAX_STOPS]
        return {"messages": messages, "model": self.model, "seed": seed, **settings}

    def parse_generations(self, outputs: Any, **kwargs: Any) -> list[str]:  # type: ignore[override]
        """Return the answers of all choices, without their thinking."""
        contents = [
            choice["message"]["content"] for output in _as_list(outputs) for choice in _sort_choices(output)
        ]
        return [
            "" if text is None else postprocess_generated_text(text, None, self.think_end_token)
            for text in contents
        ]

    def tok_encode(self, string: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the chat unchanged: the server encodes it."""
        return string

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> Any:
        raise NotImplementedError("chat completions return no log-likelihoods: use a class for completions")


def _as_list(outputs: Any) -> list[Any]:
    return outputs if isinstance(outputs, list) else [outputs]


def _sort_choices(output: Mapping[str, Any]) -> list[Any]:
    return sorted(output["choices"], key=lambda choice: choice["index"])
