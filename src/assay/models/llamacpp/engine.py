"""llama.cpp in this process: tokens in, tokens or log probabilities out.

`xllamacpp` runs the server of llama.cpp in threads. Its slots compute together, and each caches its last prompt. Generation
goes through a Python call. Only the tokenizer needs HTTP, so it is called on the loopback address that the server listens on
anyway, protected by a key made for this process.

A slot computes a prefix that a prompt shares with the previous one only once. This must not change answers, but by default it
would: llama.cpp computes a single token slightly differently from several tokens together, so a prompt whose only new token is
the last gives other numbers than one that is read from the start. So every prompt is read in two steps, whatever the slot
has cached: all but its last token (followed by a filler token, so that they are several), then the last token alone. Only
tokens read in such a first step are reused for the next prompt; generated tokens are not.
"""

from __future__ import annotations

import http.client
import json
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from assay.core.errors import DatasetError
from assay.core.records.responses import Finish, Tokens
from assay.models.finish_reasons import LLAMA_CPP, GenerationFailed
from assay.models.tokens import Unanswerable, tokens_from_bytes

__all__ = [
    "GeneratedText",
    "GenerationStopped",
    "LlamaCppEngine",
    "LoadingOptions",
    "TokenStep",
    "tokens_from_steps",
]

_FORCING_BIAS = 1e6
"""Added to the logit of a token to force it. The reported log probability is without this bias."""

_CANDIDATE_COUNTS = (64, 4096, 10_000_000)
"""Numbers of most likely tokens in which a token is searched for; the last one is larger than any vocabulary."""


class GenerationStopped(Exception):
    """The model was closed during generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadingOptions:
    """How to load the file."""

    path: str
    n_ctx: int
    """Context length of each slot."""

    slots: int = 1
    threads: int = 1
    n_gpu_layers: int = 0
    flash_attn: bool = False
    cache_prompt: bool = True
    filler: int = 0
    """A token to put after a prompt."""


@dataclass(slots=True)
class _Slot:
    """A slot of the server and its cached tokens that the next prompt can share."""

    number: int
    tokens: list[int] | None = None
    """None: unknown."""


@dataclass(frozen=True, slots=True)
class TokenStep:
    """One token: its bytes, and its log probability before temperature and sampling limits."""

    content: bytes
    logprob: float

    @classmethod
    def from_reply(cls, reply: Mapping[str, Any]) -> TokenStep:
        """Parse a token in a reply of llama.cpp."""
        return cls(bytes(reply.get("bytes") or ()) or str(reply["token"]).encode(), float(reply["logprob"]))


def tokens_from_steps(steps: Sequence[TokenStep]) -> Tokens:
    """Return the tokens of an answer. A character can span the bytes of several steps."""
    return tokens_from_bytes([step.content for step in steps], [step.logprob for step in steps])


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedText:
    """A generated text and its token counts."""

    text: str
    finish: Finish
    prompt_tokens: int
    generated_tokens: int
    steps: tuple[TokenStep, ...] = ()
    """Every token with its log probability, if requested."""


class LlamaCppEngine:
    """A loaded model file. Each slot serves one thread at a time."""

    def __init__(self, options: LoadingOptions) -> None:
        """Load the file.

        Raises:
            DatasetError: llama.cpp cannot load the file.
        """
        self._options = options
        self._key = secrets.token_hex(16)
        self._server = _start_server(options, self._key)
        self._host = urlsplit(str(self._server.listening_address)).netloc
        self._stopped = threading.Event()
        self._slots = [_Slot(number) for number in range(options.slots)]
        self._wait_until_ready()
        self._complete_token = (self._tokenize("\n", special=False) or [options.filler])[-1]
        """A token that ends with a whole character."""

    def _wait_until_ready(self) -> None:
        """Wait for the first reply, because a server that is released while starting blocks forever."""
        self._server.handle_completions({"prompt": [self._options.filler], "n_predict": 0, "id_slot": 0})

    def stop(self) -> None:
        """Stop all generation and release the weights."""
        self._stopped.set()
        self._server = None

    def encode(self, texts: Sequence[str], special: bool) -> list[list[int]]:
        """Tokenize texts, with or without the special tokens configured in the file."""
        return [self._tokenize(text, special) for text in texts]

    def generate(
        self,
        prompt: list[int],
        *,
        slot: int = 0,
        max_tokens: int,
        sampling: Mapping[str, Any],
        stop: Sequence[str] = (),
        is_complete: Callable[[str], bool] | None = None,
        log_probabilities: bool = False,
    ) -> GeneratedText:
        """Generate until a stop string, the end token, the token limit, or until `is_complete(text)`.

        Raises:
            GenerationFailed: llama.cpp ended without a known reason.
        """
        texts: list[str] = []
        steps: list[TokenStep] = []
        last: dict[str, Any] = {}

        def on_chunk(chunk: dict[str, Any]) -> bool:
            last.update(chunk)
            for choice in chunk.get("choices", ()):
                texts.append(choice["text"])
                if log_probabilities and choice.get("logprobs"):
                    steps.extend(map(TokenStep.from_reply, choice["logprobs"].get("content") or ()))
                last["finish"] = choice.get("finish_reason") or last.get("finish")
            if is_complete is not None and texts and is_complete("".join(texts)):
                last["finish"] = "stop"
                return True
            return self._stopped.is_set()

        self.prefill(prompt, slot=slot)
        parameters = {
            "prompt": prompt, "n_predict": max_tokens, "stop": [text for text in stop if text], "stream": True,
            "cache_prompt": True, "id_slot": slot, **sampling, **({"n_probs": 1} if log_probabilities else {}),
        }  # fmt: skip
        self.server.handle_completions(parameters, on_chunk)
        self._raise_for_error(last)
        finish = LLAMA_CPP.classify(last.get("finish"))
        usage = last.get("usage") or {}
        return GeneratedText(
            text="".join(texts),
            finish=finish,
            prompt_tokens=len(prompt),
            generated_tokens=int(usage.get("completion_tokens", len(texts))),
            steps=tuple(steps),
        )

    def score(
        self, context: list[int], continuation: list[int], *, slot: int = 0
    ) -> tuple[list[TokenStep], bool]:
        """Return the tokens of a continuation with their log probabilities, and whether all are the most likely.

        Each token is forced in a request of its own, so that llama.cpp reports its log probability. Earlier tokens are
        in the cache of the slot, so each request computes one token.
        """
        self.prefill(context, slot=slot)
        steps, greedy = list[TokenStep](), True
        read = list(context)
        for token in continuation:
            step = self._force_token(read, token, slot=slot)
            if step is None:  # a part of a character
                best, found = self._find_candidate(read, token, slot=slot)
            elif step["id"] == token:
                best, found = step["top_logprobs"][0], step
            else:
                raise GenerationFailed(
                    f"llama.cpp generated token {step['id']} instead of the forced token {token}",
                    kind="model error",
                )
            steps.append(TokenStep.from_reply(found))
            greedy = greedy and best["id"] == token
            read.append(token)
        return steps, greedy

    def _force_token(
        self, read: Sequence[int], token: int, *, slot: int, candidates: int = 1
    ) -> Mapping[str, Any] | None:
        """Generate this token. Return what llama.cpp reports of it: None for a token that ends inside a character."""
        parameters = {
            "prompt": read, "n_predict": 1, "temperature": 0.0, "samplers": ["top_k"], "top_k": 1, "n_probs": candidates,
            "logit_bias": [[token, _FORCING_BIAS]], "cache_prompt": True, "id_slot": slot,
        }  # fmt: skip
        reply = self.server.handle_completions(parameters)
        self._raise_for_error(reply)
        report = reply["choices"][0]["logprobs"]
        return report["content"][0] if report and report["content"] else None

    def _find_candidate(
        self, read: Sequence[int], token: int, *, slot: int
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the most likely token and this token as candidates for the next one.

        Another token is generated, because llama.cpp reports candidates only for tokens that end with a whole character.
        """
        for count in _CANDIDATE_COUNTS:
            step = self._force_token(read, self._complete_token, slot=slot, candidates=count)
            candidates: Sequence[Mapping[str, Any]] = step["top_logprobs"] if step is not None else ()
            for candidate in candidates:
                if candidate["id"] == token:
                    return candidates[0], candidate
        raise GenerationFailed(f"llama.cpp reports no log probability of token {token}", kind="model error")

    def reset_slot(self, number: int) -> None:
        """Forget what a slot has cached. Needed after a direct call of the server."""
        self._slots[number].tokens = None

    def prefill(self, prompt: list[int], *, slot: int) -> None:
        """Read all but the last token of a prompt into a slot, with the same result as from an empty cache."""
        state, wanted = self._slots[slot], prompt[:-1]
        before, state.tokens = state.tokens, None  # the content of the slot is unknown until this succeeds
        shared = (
            _count_shared_tokens(before, wanted)
            if before is not None and self._options.cache_prompt
            else None
        )
        if shared is None:
            self._run_prefill(slot, [*wanted, self._options.filler], clear_cache=True)
        elif shared < len(wanted):
            if shared == len(before or ()):  # generated tokens in the cache may match the prompt by chance
                other = self._options.filler + (wanted[shared] == self._options.filler)
                self._run_prefill(slot, [*wanted[:shared], other])
            self._run_prefill(slot, [*wanted, self._options.filler])
        state.tokens = wanted

    def _run_prefill(self, slot: int, tokens: list[int], *, clear_cache: bool = False) -> None:
        parameters = {
            "prompt": tokens, "n_predict": 0, "temperature": 0.0, "samplers": ["top_k"], "top_k": 1,
            "cache_prompt": not clear_cache, "id_slot": slot,
        }  # fmt: skip
        self._raise_for_error(self.server.handle_completions(parameters))

    @property
    def server(self) -> Any:
        """The server of llama.cpp.

        Raises:
            GenerationStopped: The engine was stopped.
        """
        server = self._server
        if server is None or self._stopped.is_set():
            raise GenerationStopped
        return server

    def _raise_for_error(self, reply: Mapping[str, Any]) -> None:
        if self._stopped.is_set():
            raise GenerationStopped
        if error := reply.get("error"):
            message = str(error.get("message", error) if isinstance(error, dict) else error)
            if isinstance(error, dict) and int(error.get("code", 500)) < 500:
                raise Unanswerable(message)
            raise GenerationFailed(f"llama.cpp failed: {message}", kind="model error")

    def _tokenize(self, text: str, special: bool) -> list[int]:
        parameters = json.dumps({"content": text, "add_special": special, "parse_special": True})
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        _ = self.server
        with closing(http.client.HTTPConnection(self._host, timeout=60)) as connection:
            connection.request("POST", "/tokenize", parameters.encode(), headers)
            reply = json.loads(connection.getresponse().read())
        self._raise_for_error(reply)
        return [int(token) for token in reply["tokens"]]


def _count_shared_tokens(one: list[int], other: list[int]) -> int:
    """Return the length of the common prefix of two lists."""
    for index, (mine, yours) in enumerate(zip(one, other, strict=False)):
        if mine != yours:
            return index
    return min(len(one), len(other))


def _start_server(options: LoadingOptions, key: str) -> Any:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = options.path
    parameters.n_ctx = options.n_ctx * options.slots
    parameters.n_parallel = options.slots
    parameters.n_gpu_layers = options.n_gpu_layers
    parameters.cpuparams.n_threads = options.threads
    parameters.cpuparams_batch.n_threads = options.threads
    kinds = xllamacpp.llama_flash_attn_type
    parameters.flash_attn_type = (
        kinds.LLAMA_FLASH_ATTN_TYPE_ENABLED if options.flash_attn else kinds.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    parameters.fit_params = False  # it would reduce n_ctx
    parameters.cache_ram_mib = 0  # cache only the last prompt of each slot
    parameters.warmup = False
    parameters.verbosity = -1
    parameters.api_keys = [key]
    parameters.ui = False
    try:
        return xllamacpp.Server(parameters)
    except RuntimeError as error:
        raise DatasetError(
            f"llama.cpp cannot load the model: {error}",
            where=options.path,
            hint="check that the .gguf file is complete, its architecture is supported, and there is enough memory",
        ) from None
