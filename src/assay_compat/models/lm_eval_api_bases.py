"""`TemplateAPI` of lm-eval: the base class of model classes that call a server, for classes that need nothing else of the package.

A subclass writes the payload of a request and reads the response; the base class encodes, batches, sends and retries.
"""

from __future__ import annotations

import abc
import copy
import importlib
import json
import logging
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from assay.core.errors import MissingPackage
from assay.models.tokens.pairs import split_rolling_windows
from assay_compat.models.lm_eval_bases import TemplateLM
from assay_compat.models.request_batching import Collator

__all__ = ["JsonChatStr", "TemplateAPI"]

_LOG = logging.getLogger(__name__)
_MIN_RETRY_DELAY_S = 1.0
_MAX_RETRY_DELAY_S = 10.0
_MAX_ERROR_CHARACTERS = 1000
_TOO_MANY_REQUESTS = 429

Pair = tuple[Any, list[int], list[int]]
"""The texts of a request, and the tokens of its context and continuation."""


class JsonChatStr(NamedTuple):
    """A chat as JSON, in the place of a prompt."""

    prompt: str

    def encode(self, encoding: str) -> bytes:
        return self.prompt.encode(encoding)


class TemplateAPI(TemplateLM):
    """A model behind a server. `num_concurrent` calls run at once, each with `batch_size` requests."""

    MULTIMODAL = False  # images need the package of lm-eval

    def __init__(
        self,
        model: str | None = None,
        pretrained: str | None = None,
        base_url: str | None = None,
        tokenizer: str | None = None,
        tokenizer_backend: str | None = "huggingface",
        truncate: bool = False,
        num_concurrent: int = 1,
        max_retries: int = 3,
        max_gen_toks: int = 256,
        batch_size: str | int = 1,
        seed: int = 1234,
        max_length: int | None = 2048,
        add_bos_token: bool = False,
        custom_prefix_token_id: int | None = None,
        tokenized_requests: bool = True,
        trust_remote_code: bool = False,
        revision: str | None = "main",
        use_fast_tokenizer: bool = True,
        verify_certificate: bool = True,
        ca_cert_path: str | None = None,
        auth_token: str | None = None,
        eos_string: str | None = None,
        timeout: int = 300,
        header: dict[str, str] | None = None,
        max_images: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.model = model or pretrained
        self.base_url = base_url
        self._header = header
        self._truncate = truncate
        self._batch_size = 1 if "auto" in str(batch_size) else int(batch_size)
        self._concurrent = int(num_concurrent)
        self._max_gen_toks = int(max_gen_toks)
        self._seed = int(seed)
        self.max_length = int(max_length or 2048) - 1  # one token is generated
        self.max_retries = int(max_retries)
        self.add_bos_token = add_bos_token
        self.custom_prefix_token_id = custom_prefix_token_id
        self.verify_certificate = verify_certificate
        self.ca_cert_path = ca_cert_path
        self.auth_token = auth_token
        self._eos_string = eos_string
        self.timeout = int(timeout)
        self.max_images = int(max_images)
        self.tokenizer_backend = None if tokenizer_backend in (None, "None", "none") else tokenizer_backend
        self.tokenized_requests = tokenized_requests and self.tokenizer_backend is not None
        self.tokenizer = self._load_tokenizer(
            tokenizer or self.model,
            trust_remote_code=trust_remote_code,
            revision=revision,
            use_fast=use_fast_tokenizer,
        )

    def _load_tokenizer(self, name: str | None, **options: Any) -> Any:
        if self.tokenizer_backend is None:
            return None
        user = f"`{type(self).__name__}`"
        if self.tokenizer_backend == "huggingface":
            try:
                from transformers import AutoTokenizer
            except ModuleNotFoundError:
                raise MissingPackage.of("transformers", user, where="tokenizer_backend") from None
            return AutoTokenizer.from_pretrained(name, **options)
        if self.tokenizer_backend == "tiktoken":
            try:
                tiktoken = importlib.import_module("tiktoken")
            except ModuleNotFoundError:
                raise MissingPackage.of("tiktoken", user, where="tokenizer_backend") from None
            return tiktoken.encoding_for_model(name)
        raise ValueError(
            f"tokenizer_backend `{self.tokenizer_backend}` needs the package lm_eval; without it: huggingface, tiktoken, None"
        )

    # --- what a subclass defines ---

    @abc.abstractmethod
    def _create_payload(
        self,
        messages: Any,
        *,
        generate: bool = True,
        gen_kwargs: dict[str, Any] | None = None,
        seed: int = 1234,
        eos: str | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return the JSON object to send."""

    @staticmethod
    @abc.abstractmethod
    def parse_logprobs(
        outputs: Any, tokens: list[list[int]] | None = None, ctxlens: list[int] | None = None, **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """Return the log probability of each continuation in a response, and whether it is the greedy one."""

    @staticmethod
    @abc.abstractmethod
    def parse_generations(outputs: Any, **kwargs: Any) -> list[str]:
        """Return the generated texts in a response."""

    @cached_property
    def api_key(self) -> str:
        """The key of the server."""
        return ""

    @cached_property
    def header(self) -> dict[str, str]:
        """The headers of every request."""
        return self._header or {"Authorization": f"Bearer {self.api_key}"}

    # --- tokens and messages ---

    @property
    def tokenizer_name(self) -> str:
        return ""

    @property
    def eot_token_id(self) -> Any:
        """The token at the end of a text."""
        if self.tokenizer is None:
            return None
        is_tiktoken = self.tokenizer_backend == "tiktoken"
        return self.tokenizer.eot_token if is_tiktoken else self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> Any:
        """The token before a continuation without a context."""
        if self.custom_prefix_token_id is not None:
            return self.custom_prefix_token_id
        first = getattr(self.tokenizer, "bos_token_id", None)
        return self.eot_token_id if first is None else first

    @cached_property
    def eos_string(self) -> str | None:
        """The text of the token at the end of a text."""
        if self._eos_string or self.tokenizer is None:
            return self._eos_string
        if self.tokenizer_backend == "tiktoken":
            return str(self.tokenizer.decode([self.tokenizer.eot_token]))
        return str(self.tokenizer.eos_token)

    def tok_encode(  # type: ignore[override]
        self,
        string: Any,
        left_truncate_len: int | None = None,
        add_special_tokens: bool | None = False,
        truncation: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Encode a text, or a list of texts."""
        if self.tokenizer is None:
            return [string]
        texts = [string] if isinstance(string, str) else list(string)
        if self.tokenizer_backend == "tiktoken":
            encoded = [list(self.tokenizer.encode(text)) for text in texts]
        else:
            special = bool(add_special_tokens) or self.add_bos_token
            encoded = [
                list(self.tokenizer(text, add_special_tokens=special, truncation=truncation).input_ids)
                for text in texts
            ]
        if left_truncate_len:
            encoded = [tokens[-left_truncate_len:] for tokens in encoded]
        return encoded[0] if isinstance(string, str) else encoded

    def decode_batch(self, tokens: list[list[int]]) -> list[str]:
        """Decode lists of tokens."""
        if self.tokenizer_backend == "tiktoken":
            return list(self.tokenizer.decode_batch(tokens))
        return list(self.tokenizer.batch_decode(tokens))

    def apply_chat_template(self, chat_history: Any, add_generation_prompt: bool = True) -> Any:
        """Write a chat with the template of the tokenizer, or as JSON for a server that takes messages."""
        if self.tokenizer_backend == "huggingface" and self.tokenized_requests:
            return self.tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
        return JsonChatStr(json.dumps(chat_history, ensure_ascii=False))

    def create_message(self, messages: Sequence[Any], generate: bool = False) -> Any:
        """Return the prompts of a batch in the form of the payload: messages, token lists, or one or several texts."""
        if isinstance(messages[0], JsonChatStr):
            if len(messages) > 1:
                raise ValueError("chat requests need batch_size=1")
            return json.loads(messages[0].prompt)
        if self.tokenized_requests:
            return list(messages)
        texts = list(messages) if isinstance(messages[0], str) else self.decode_batch(list(messages))
        return texts[0] if self._batch_size <= 1 else texts

    # --- calls ---

    def model_call(
        self,
        messages: Sequence[Any],
        *,
        generate: bool = True,
        gen_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Send one batch and return the JSON value of the response."""
        payload = self._create_payload(
            self.create_message(messages),
            generate=generate,
            gen_kwargs=copy.deepcopy(gen_kwargs),
            seed=self._seed,
            **({"eos": self.eos_string} if self._concurrent <= 1 else {}),
            **kwargs,
        )
        headers = {"content-type": "application/json", **self.header}
        request = Request(str(self.base_url), json.dumps(payload).encode(), headers, method="POST")
        with urlopen(request, timeout=self.timeout, context=self._build_context()) as response:
            return json.loads(response.read())

    def _build_context(self) -> ssl.SSLContext | None:
        if not str(self.base_url).startswith("https:"):
            return None
        context = ssl.create_default_context(cafile=self.ca_cert_path)
        if not self.verify_certificate:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def _call(self, messages: Sequence[Any], **options: Any) -> Any:
        """Send one batch, up to `max_retries` times."""
        for attempt in range(1, self.max_retries + 1):
            try:
                return self.model_call(messages, **options)
            except HTTPError as error:
                text = error.read().decode("utf-8", "replace")[:_MAX_ERROR_CHARACTERS]
                is_final = error.code < 500 and error.code != _TOO_MANY_REQUESTS
                if is_final or attempt == self.max_retries:
                    raise RuntimeError(f"HTTP status {error.code}: {text}") from None
                _LOG.warning("HTTP status %s, sending the request again: %s", error.code, text)
            except (OSError, ValueError) as error:
                if attempt == self.max_retries:
                    raise
                _LOG.warning("sending the request again: %s", error)
            time.sleep(min(_MAX_RETRY_DELAY_S, max(_MIN_RETRY_DELAY_S, 0.5 * 2**attempt)))
        raise RuntimeError("max_retries must be at least 1")

    def _map(self, send: Callable[[Any], list[Any]], batches: Sequence[Any]) -> list[list[Any]]:
        """Send batches, `num_concurrent` at once."""
        if self._concurrent <= 1:
            return [send(batch) for batch in batches]
        with ThreadPoolExecutor(self._concurrent) as pool:
            return list(pool.map(send, batches))

    # --- the methods of a model ---

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Generate a text for each request; the longest prompts first, in batches with the same settings."""
        collator = Collator(
            range(len(requests)),
            sort_fn=lambda index: -len(requests[index].args[0]),
            group_fn=lambda index: requests[index].args[1],
            group_by="gen_kwargs",
        )
        batches = list(collator.get_batched(n=self._batch_size))

        def send(batch: list[int]) -> list[str]:
            contexts = [requests[index].args[0] for index in batch]
            settings = requests[batch[0]].args[1]
            prompts: Sequence[Any] = contexts
            if self.tokenized_requests:
                kept = self.max_length - settings.get("max_gen_toks", self._max_gen_toks)
                prompts = [
                    tokens[-kept:]
                    for tokens in self.tok_encode(contexts, add_special_tokens=self.add_bos_token)
                ]
            outputs = self._call(prompts, generate=True, gen_kwargs=copy.deepcopy(settings))
            texts = [
                "" if text is None else text
                for text in self.parse_generations(outputs=outputs, contexts=contexts)
            ]
            for context, text in zip(contexts, texts, strict=True):
                self.cache_hook.add_partial("generate_until", (context, settings), text)
            return texts

        return _restore_order(batches, self._map(send, batches), len(requests))

    def batch_loglikelihood_requests(
        self, chunks: Sequence[Sequence[Pair]]
    ) -> tuple[list[list[int]], list[int], list[Any]]:
        """Return the tokens of each pair, cut on the left, the lengths of the contexts, and the texts."""
        pairs = [pair for chunk in chunks for pair in chunk]
        tokens = [(context + continuation)[-self.max_length :] for _, context, continuation in pairs]
        lengths = [
            len(one) - len(continuation) for one, (_, _, continuation) in zip(tokens, pairs, strict=True)
        ]
        return tokens, lengths, [texts for texts, _, _ in pairs]

    def _loglikelihood_tokens(self, requests: Sequence[Pair], **kwargs: Any) -> list[tuple[float, bool]]:
        if self.tokenizer is None:
            raise ValueError(
                "log-likelihoods need a tokenizer: pass tokenizer_backend=huggingface and tokenizer=NAME"
            )
        order = sorted(
            range(len(requests)),
            key=lambda index: (
                -len(requests[index][1] + requests[index][2]),
                requests[index][1] + requests[index][2],
            ),
        )
        batches = _split(order, self._batch_size)

        def send(batch: list[int]) -> list[tuple[float, bool]]:
            tokens, lengths, texts = self.batch_loglikelihood_requests([[requests[index] for index in batch]])
            outputs = self._call(tokens, generate=False)
            values = list(
                self.parse_logprobs(
                    outputs=[outputs] if isinstance(outputs, Mapping) else outputs,
                    tokens=tokens,
                    ctxlens=lengths,
                )
            )
            for key, value in zip(texts, values, strict=True):
                if key is not None:
                    self.cache_hook.add_partial("loglikelihood", key, value)
            return values

        return _restore_order(batches, self._map(send, batches), len(requests))

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Score whole texts, in windows."""
        totals = []
        for request in requests:
            (text,) = request.args
            windows = split_rolling_windows(
                self.tok_encode(text), prefix_token=self.prefix_token_id, max_length=self.max_length - 1
            )
            pairs: list[Pair] = [(None, list(one.context), list(one.continuation)) for one in windows]
            total = sum(value for value, _ in self._loglikelihood_tokens(pairs))
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), total)
            totals.append(total)
        return totals


def _split(items: Sequence[int], size: int) -> list[list[int]]:
    return [list(items[start : start + size]) for start in range(0, len(items), size)]


def _restore_order(
    batches: Sequence[Sequence[int]], results: Sequence[Sequence[Any]], count: int
) -> list[Any]:
    """Return results of batches in the order of the requests."""
    ordered: list[Any] = [None] * count
    for batch, values in zip(batches, results, strict=True):
        if len(values) != len(batch):
            raise ValueError(
                f"the class read {len(values)} results from the response to {len(batch)} requests"
            )
        for index, value in zip(batch, values, strict=True):
            ordered[index] = value
    return ordered
