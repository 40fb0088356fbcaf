"""The engine of llama.cpp inside this process: tokens in, tokens or log-probabilities out.

`xllamacpp` runs llama.cpp's own server on threads: slots that compute together, and a cache of what each slot read last.
Generation goes through a Python call. Only the tokenizer is behind HTTP, so it is asked on the loopback address the server
listens on anyway, closed to others by a key made for this process.

A slot computes what a prompt shares with the one before it once. That must not change answers, and left alone it would:
llama.cpp computes one token alone a little differently than several together, so a prompt of which only the last token is
new gets other numbers than one that is read from the start. So every prompt is read in two steps, whatever the slot holds:
all but its last token (with a token put behind them, so that they are several), then the last one alone. Only what was
read as part of such a first step is kept for the next prompt; what was written is not.
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
from assay.core.responses import Finish, Tokens
from assay.models.tokens import Unanswerable, tokens_of_bytes

__all__ = ["Engine", "Loading", "Step", "Stopped", "Written", "tokens_of"]

_FORCED = 1e6
"""Added to a token's logit so that it is the one that is written; what is reported is its probability without."""


class Stopped(Exception):
    """The answer is no longer wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How the file is loaded."""

    path: str
    n_ctx: int
    """Tokens each slot holds."""

    slots: int = 1
    threads: int = 1
    n_gpu_layers: int = 0
    flash_attn: bool = False
    cache_prompt: bool = True
    filler: int = 0
    """A token that can stand behind a prompt."""


@dataclass(slots=True)
class _Slot:
    """One of the places that compute, and the tokens it has read that the next prompt may share."""

    number: int
    read: list[int] | None = None
    """None: not known."""


@dataclass(frozen=True, slots=True)
class Step:
    """One token: the bytes it wrote, and how likely it was before temperature and limits."""

    content: bytes
    logprob: float

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Step:
        """As llama.cpp says it."""
        return cls(bytes(said.get("bytes") or ()) or str(said["token"]).encode(), float(said["logprob"]))


def tokens_of(steps: Sequence[Step]) -> Tokens:
    """The steps of an answer; their bytes are characters only together."""
    return tokens_of_bytes([step.content for step in steps], [step.logprob for step in steps])


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What came out of one generation."""

    text: str
    finish: Finish
    read: int
    written: int
    steps: tuple[Step, ...] = ()
    """Every token with its log-probability, where these were asked for."""


class Engine:
    """A loaded file. Each of its slots is for one thread at a time."""

    def __init__(self, loading: Loading) -> None:
        """Load it.

        Raises:
            DatasetError: llama.cpp does not take the file.
        """
        self._loading = loading
        self._key = secrets.token_hex(16)
        self._server = _start(loading, self._key)
        self._host = urlsplit(str(self._server.listening_address)).netloc
        self._stopped = threading.Event()
        self._slots = [_Slot(number) for number in range(loading.slots)]
        self._begin()

    def _begin(self) -> None:
        """Wait until it answers: a server that is given up while it is still starting is waited for without end."""
        self._server.handle_completions({"prompt": [self._loading.filler], "n_predict": 0, "id_slot": 0})

    def stop(self) -> None:
        """Let go of every answer under way, and of the weights."""
        self._stopped.set()
        self._server = None

    def encode(self, texts: Sequence[str], special: bool) -> list[list[int]]:
        """The tokens of each text, with the special tokens the file asks for or without."""
        return [self._tokenize(text, special) for text in texts]

    def generate(
        self,
        prompt: list[int],
        *,
        slot: int = 0,
        max_tokens: int,
        sampling: Mapping[str, Any],
        stop: Sequence[str] = (),
        enough: Callable[[str], bool] | None = None,
        chances: bool = False,
    ) -> Written:
        """Write on from the tokens of a prompt until a stop string, the end token, the limit, or `enough(text)`."""
        pieces: list[str] = []
        steps: list[Step] = []
        last: dict[str, Any] = {}

        def hear(piece: dict[str, Any]) -> bool:
            last.update(piece)
            for choice in piece.get("choices", ()):
                pieces.append(choice["text"])
                if chances and choice.get("logprobs"):
                    steps.extend(map(Step.of, choice["logprobs"].get("content") or ()))
                last["finish"] = choice.get("finish_reason") or last.get("finish")
            if enough is not None and pieces and enough("".join(pieces)):
                last["finish"] = "stop"
                return True
            return self._stopped.is_set()

        self._read(prompt, slot)
        asked = {
            "prompt": prompt, "n_predict": max_tokens, "stop": [text for text in stop if text], "stream": True,
            "cache_prompt": True, "id_slot": slot, **sampling, **({"n_probs": 1} if chances else {}),
        }  # fmt: skip
        self._live.handle_completions(asked, hear)
        self._check(last)
        finish: Finish = "stop" if last.get("finish") == "stop" else "length"
        usage = last.get("usage") or {}
        return Written(
            text="".join(pieces),
            finish=finish,
            read=len(prompt),
            written=int(usage.get("completion_tokens", len(pieces))),
            steps=tuple(steps),
        )

    def score(self, context: list[int], continuation: list[int], *, slot: int = 0) -> tuple[list[Step], bool]:
        """The tokens of a continuation with their log-probabilities, and whether each is the likeliest.

        Each token is written by force, in a request of its own, so that llama.cpp reports its probability; what was
        read before is in the slot's cache, so that each request costs one token.
        """
        self._read(context, slot)
        steps, greedy = list[Step](), True
        read = list(context)
        for token in continuation:
            asked = {
                "prompt": read, "n_predict": 1, "temperature": 0.0, "samplers": ["top_k"], "top_k": 1, "n_probs": 1,
                "logit_bias": [[token, _FORCED]], "cache_prompt": True, "id_slot": slot,
            }  # fmt: skip
            reply = self._live.handle_completions(asked)
            self._check(reply)
            (step,) = reply["choices"][0]["logprobs"]["content"]
            if step["id"] != token:
                raise RuntimeError(f"llama.cpp wrote token {step['id']} where {token} was asked for")
            steps.append(Step.of(step))
            greedy = greedy and step["top_logprobs"][0]["id"] == token
            read.append(token)
        return steps, greedy

    def _read(self, prompt: list[int], number: int) -> None:
        """Have a slot read all but the last token of a prompt, computed as if it were read from the start."""
        slot, wanted = self._slots[number], prompt[:-1]
        before, slot.read = slot.read, None  # until it has read this, nobody knows what it holds
        shared = _shared(before, wanted) if before is not None and self._loading.cache_prompt else None
        if shared is None:
            self._step(number, [*wanted, self._loading.filler], fresh=True)
        elif shared < len(wanted):
            if shared == len(before or ()):  # what was written behind it may happen to go on like the prompt
                other = self._loading.filler + (wanted[shared] == self._loading.filler)
                self._step(number, [*wanted[:shared], other])
            self._step(number, [*wanted, self._loading.filler])
        slot.read = wanted

    def _step(self, slot: int, tokens: list[int], *, fresh: bool = False) -> None:
        asked = {
            "prompt": tokens, "n_predict": 0, "temperature": 0.0, "samplers": ["top_k"], "top_k": 1,
            "cache_prompt": not fresh, "id_slot": slot,
        }  # fmt: skip
        self._check(self._live.handle_completions(asked))

    @property
    def _live(self) -> Any:
        server = self._server
        if server is None or self._stopped.is_set():
            raise Stopped
        return server

    def _check(self, reply: Mapping[str, Any]) -> None:
        if self._stopped.is_set():
            raise Stopped
        if error := reply.get("error"):
            message = str(error.get("message", error) if isinstance(error, dict) else error)
            if isinstance(error, dict) and int(error.get("code", 500)) < 500:
                raise Unanswerable(message)
            raise RuntimeError(f"llama.cpp failed: {message}")

    def _tokenize(self, text: str, special: bool) -> list[int]:
        asked = json.dumps({"content": text, "add_special": special, "parse_special": True})
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        _ = self._live
        with closing(http.client.HTTPConnection(self._host, timeout=60)) as connection:
            connection.request("POST", "/tokenize", asked.encode(), headers)
            reply = json.loads(connection.getresponse().read())
        self._check(reply)
        return [int(token) for token in reply["tokens"]]


def _shared(one: list[int], other: list[int]) -> int:
    """How many tokens two lists begin with together."""
    for at, (mine, yours) in enumerate(zip(one, other, strict=False)):
        if mine != yours:
            return at
    return min(len(one), len(other))


def _start(loading: Loading, key: str) -> Any:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = loading.path
    parameters.n_ctx = loading.n_ctx * loading.slots
    parameters.n_parallel = loading.slots
    parameters.n_gpu_layers = loading.n_gpu_layers
    parameters.cpuparams.n_threads = loading.threads
    parameters.cpuparams_batch.n_threads = loading.threads
    kinds = xllamacpp.llama_flash_attn_type
    parameters.flash_attn_type = (
        kinds.LLAMA_FLASH_ATTN_TYPE_ENABLED if loading.flash_attn else kinds.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    parameters.fit_params = False  # it would shorten n_ctx unasked
    parameters.cache_ram_mib = 0  # prompts of slots only: what was read long ago is not kept
    parameters.warmup = False
    parameters.verbosity = -1
    parameters.api_keys = [key]
    parameters.ui = False
    try:
        return xllamacpp.Server(parameters)
    except RuntimeError as error:
        raise DatasetError(
            f"llama.cpp does not load the model: {error}",
            where=loading.path,
            hint="is it a whole .gguf file of an architecture this version knows, and is there memory for it?",
        ) from None
