"""Arguments of remote models, with the names that other harnesses use."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.options.parsing import parse_bool
from assay.core.secrets import register_secret
from assay.models.credentials import find_key, is_header_text, reject_key_arguments
from assay.models.remote.concurrency import INITIAL_CONCURRENCY
from assay.models.remote.endpoint import Endpoint
from assay.models.remote.rate_limits import TokenCounting
from assay.models.remote.retries import RetryPolicy
from assay.models.remote.transport.address import Address, parse_address

__all__ = ["Options", "read_options"]

_ALIASES = {
    "pretrained": "model",
    "model_version": "model",
    "max_frames": "max_frames_num",
    "nframes": "max_frames_num",
    "video_fps": "fps",
    "auth_token_env": "api_key_env",
    "max_new_tokens": "max_gen_toks",
}
"""Names that other harnesses use for an argument."""

_IGNORED = frozenset(
    """
    adaptive_concurrency adaptive_decrease_factor adaptive_failure_threshold adaptive_increase_step
    adaptive_max_concurrency adaptive_min_concurrency adaptive_target_latency_s device httpx_trust_env is_qwen3_vl
    max_batch_size max_images min_pixels num_cpus prefix_aware_queue prefix_hash_chars trust_remote_code truncate
    use_fast_tokenizer work_dir
    """.split()
)
"""Arguments of other harnesses without effect here: concurrency always adapts, media are never dropped."""

_HOST_KEYS = {
    "openrouter.ai": "OPENROUTER_API_KEY",
    "api.x.ai": "XAI_API_KEY",
    "api.together.xyz": "TOGETHER_API_KEY",
    "api.groq.com": "GROQ_API_KEY",
    "api.deepseek.com": "DEEPSEEK_API_KEY",
    "api.mistral.ai": "MISTRAL_API_KEY",
    "api.fireworks.ai": "FIREWORKS_API_KEY",
}
_CALL_PATHS = ("/chat/completions", "/completions", "/responses")
_RETRY_DEFAULTS = RetryPolicy()
_MAX_CONCURRENCY = 1024
"""Without `num_concurrent`. Calls may also use half of the files that the process may open: each has a connection."""

_MAX_INITIAL_CONCURRENCY = 32
_AZURE_VERSION = "2025-03-01-preview"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Arguments of a remote model."""

    model: str = ""
    base_url: str = ""
    api: str = "chat"
    """`chat` for chat completions, `responses` for the responses API."""

    num_concurrent: int | None = None
    """Maximum number of concurrent calls (1024); the actual number adapts to the server."""

    max_retries: int = _RETRY_DEFAULTS.retries
    """Attempts after the first."""

    retry_backoff_s: float = _RETRY_DEFAULTS.initial_delay_s
    timeout: float = _RETRY_DEFAULTS.timeout_s
    """Timeout of one attempt in seconds."""

    total_timeout: float = _RETRY_DEFAULTS.total_timeout_s
    """Timeout of all attempts of a request in seconds."""

    max_retry_wait: float = _RETRY_DEFAULTS.max_retry_wait_s
    """Longest delay in seconds that the server can ask for; `--max_retry_wait` sets it for all models of a run."""

    max_reply_mb: float = 64.0
    """Largest accepted reply, after decompression."""

    rpm: float | None = None
    """Requests per minute; `--rpm` sets it for all models of a run."""

    tpm: float | None = None
    """Tokens per minute."""

    tpm_counts: str = "auto"
    """What the service counts per minute: `used` tokens, or `requested` ones with the whole `max_tokens`; `auto`: requested
    at OpenAI and Azure."""

    seed: int | None = 1234
    max_gen_toks: int = 256
    """Maximum tokens of an answer, for tasks that specify none."""

    max_length: int | None = None
    """Maximum tokens of a prompt and its continuation together."""

    verify_certificate: bool = True
    ca_cert_path: str = ""
    client_cert_path: str = ""
    """PEM file with the client's certificate and its key, for servers that ask for one."""

    header: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """Additional headers of every call. Not stored with the run."""

    api_key_env: str = ""
    """Environment variable of the key."""

    azure_openai: bool = False
    api_version: str = ""
    system_prompt: str = ""
    eos_string: str = ""
    """Additional stop string."""

    think_end_token: str = ""
    """Marks the end of reasoning that a server leaves in the answer."""

    extra_body: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Additional fields of every call."""

    image_format: str = "original"
    """`original` (the unchanged file if possible, else PNG), `png`, `jpeg` or `webp`."""

    max_pixels: int | None = None
    max_size_in_mb: float = 20.0
    max_frames_num: int = 10
    fps: float | None = None
    video: str = "frames"
    """`frames`, or `file` for servers that accept video files."""

    probe: bool = True
    """Whether to probe what the server supports before the run."""

    batch_size: int = 1
    """Prompts per call, for servers that accept several."""

    tokenizer: str = ""
    tokenizer_backend: str = "auto"
    tokenized_requests: bool | None = None
    add_bos_token: bool = False
    custom_prefix_token_id: int | None = None
    revision: str = ""

    @property
    def max_concurrency(self) -> int:
        """Maximum number of concurrent calls."""
        if self.num_concurrent is not None:
            return max(1, self.num_concurrent)
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return _MAX_CONCURRENCY if files < 0 else max(1, min(_MAX_CONCURRENCY, files // 2))

    @property
    def initial_concurrency(self) -> int:
        """Initial number of concurrent calls: few, unless the user set a number."""
        return (
            INITIAL_CONCURRENCY
            if self.num_concurrent is None
            else min(_MAX_INITIAL_CONCURRENCY, self.max_concurrency)
        )

    @property
    def retry_policy(self) -> RetryPolicy:
        """How often and how long calls are retried."""
        return RetryPolicy(
            retries=self.max_retries,
            timeout_s=self.timeout,
            total_timeout_s=self.total_timeout,
            max_retry_wait_s=self.max_retry_wait,
            initial_delay_s=self.retry_backoff_s,
            max_delay_s=min(_RETRY_DEFAULTS.max_delay_s, 60 * self.retry_backoff_s),
        )

    @property
    def key_variables(self) -> tuple[str, ...]:
        """Environment variables that may contain the key, in order."""
        if self.api_key_env:
            return (self.api_key_env,)
        if self.is_azure:
            return ("AZURE_OPENAI_API_KEY",)
        own = _HOST_KEYS.get(self.address().host)
        return (own, "OPENAI_API_KEY") if own else ("OPENAI_API_KEY",)

    @property
    def is_azure(self) -> bool:
        return self.azure_openai or ".openai.azure.com" in self.base_url

    @property
    def is_openai(self) -> bool:
        """Whether the server is OpenAI's own service, which is stricter than compatible servers."""
        return self.is_azure or self.address().host == "api.openai.com"

    @property
    def requires_key(self) -> bool:
        """Whether the service is known to require a key."""
        return bool(self.api_key_env) or self.is_openai or self.address().host in _HOST_KEYS

    @property
    def token_counting(self) -> TokenCounting:
        """Which tokens the service counts against its limit per minute."""
        requested = self.is_openai if self.tpm_counts == "auto" else self.tpm_counts == "requested"
        return "requested" if requested else "used"

    def address(self) -> Address:
        """Return the base address; `base_url` may include the path of a call."""
        if self.azure_openai or ".openai.azure.com" in self.base_url:
            return self._azure_address()
        text = self.base_url or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE")
        address = parse_address(text or "https://api.openai.com/v1", where="base_url")
        path = address.path
        for call in _CALL_PATHS:
            path = path.removesuffix(call)
        return Address(address.scheme, address.host, address.port, path or "/v1", address.query)

    def _azure_address(self) -> Address:
        names = ("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_BASE")
        given = self.base_url or next((os.environ[name] for name in names if os.environ.get(name)), "")
        address = parse_address(given, where="base_url")
        path = address.path
        for call in _CALL_PATHS:
            path = path.removesuffix(call)
        if "/deployments/" not in path:
            path = f"{path.removesuffix('/openai')}/openai/deployments/{self.model}"
        version = self.api_version or os.environ.get("AZURE_OPENAI_API_VERSION") or _AZURE_VERSION
        return Address(
            address.scheme, address.host, address.port, path, address.query or f"api-version={version}"
        )

    def open_endpoint(self) -> Endpoint:
        """Return an endpoint for the server. Reads the key."""
        key = find_key(self.key_variables)
        if key is None and self.requires_key:
            raise InvalidOption(
                f"no API key for {self.address().origin}",
                where="environment",
                hint=f"set {self.key_variables[0]}, or name another variable with api_key_env=NAME",
            )
        headers = dict(self.header)
        if key is not None:
            headers |= {"api-key": key} if self.is_azure else {"Authorization": f"Bearer {key}"}
        return Endpoint(
            self.address(),
            headers=headers,
            key_variable=self.key_variables[0],
            retry_policy=self.retry_policy,
            num_concurrent=self.max_concurrency,
            initial_concurrency=self.initial_concurrency,
            rpm=self.rpm,
            tpm=self.tpm,
            token_counting=self.token_counting,
            counts_tokens_at_start=self.token_counting == "requested",
            verify_certificate=self.verify_certificate,
            ca_cert_path=self.ca_cert_path,
            client_cert_path=self.client_cert_path,
            max_body_bytes=int(self.max_reply_mb * 2**20),
        )


def _parse_text(value: Any) -> str:
    if isinstance(value, (Mapping, list)):
        raise ValueError
    return "" if value is None else str(value)


def _parse_switch(value: Any) -> bool:
    return value if isinstance(value, bool) else parse_bool(str(value))


def _parse_count(value: Any) -> int:
    if isinstance(value, bool) or int(value) != float(value) or int(value) < 0:
        raise ValueError
    return int(value)


def _parse_amount(value: Any) -> float:
    if isinstance(value, bool) or not 0 < float(value) < float("inf"):
        raise ValueError
    return float(value)


def _parse_mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError
    return dict(value)


def _parse_headers(value: Any) -> Mapping[str, str]:
    """Register all header values as secrets: they may contain keys.

    Raises:
        ValueError: A header contains a character that HTTP does not allow.
    """
    headers = {str(name): register_secret(str(text)) for name, text in _parse_mapping(value).items()}
    if any(not is_header_text(name) or not is_header_text(text) for name, text in headers.items()):
        raise ValueError
    return headers


def _choice_parser(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if str(value).lower() not in words:
            raise ValueError
        return str(value).lower()

    return read


_PARSERS: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    **dict.fromkeys(("verify_certificate", "azure_openai", "probe", "tokenized_requests", "add_bos_token"), (_parse_switch, "true or false")),
    **dict.fromkeys(("num_concurrent", "max_retries", "seed", "max_gen_toks", "max_length", "max_pixels", "max_frames_num", "custom_prefix_token_id"), (_parse_count, "a whole number")),
    **dict.fromkeys(("retry_backoff_s", "timeout", "total_timeout", "max_retry_wait", "max_reply_mb", "rpm", "tpm", "max_size_in_mb", "fps"), (_parse_amount, "a number above 0")),
    "header": (_parse_headers, "a JSON object of printable ASCII texts"),
    "extra_body": (_parse_mapping, "a JSON object"),
    "tpm_counts": (_choice_parser("auto", "used", "requested"), "auto, used or requested"),
    "api": (_choice_parser("chat", "responses"), "chat or responses"),
    "image_format": (_choice_parser("original", "png", "jpeg", "webp"), "original, png, jpeg or webp"),
    "video": (_choice_parser("frames", "file"), "frames or file"),
    "tokenizer_backend": (_choice_parser("auto", "huggingface", "tiktoken", "remote", "none"), "auto, huggingface, tiktoken, remote or none"),
    "batch_size": (lambda value: 1 if str(value).startswith("auto") else max(1, _parse_count(value)), "a number"),
}  # fmt: skip


def read_options(
    model_name: str, arguments: Mapping[str, Any], known: Sequence[str], **defaults: Any
) -> Options:
    """Parse the arguments of a model.

    Raises:
        InvalidOption: An argument is a key, unknown or invalid.
    """
    values: dict[str, Any] = dict(defaults)
    reject_key_arguments(arguments, variables=[str(arguments.get("api_key_env") or "OPENAI_API_KEY")])
    names = [one.name for one in fields(Options)]
    for given, value in arguments.items():
        name = _ALIASES.get(given, given)
        if name in _IGNORED or (value is None and name != "seed"):
            continue
        if name not in names or (known and name not in known):
            raise _build_unknown_argument_error(model_name, given, [*(known or names), *_ALIASES])
        reader, wanted = _PARSERS.get(name, (_parse_text, "a text"))
        try:
            values[name] = None if value is None else reader(value)
        except (TypeError, ValueError, InvalidOption):
            shown = "" if name == "header" else f", not {value!r:.60}"
            raise InvalidOption(f"`{given}` must be {wanted}{shown}", where="--model_args") from None
    options = Options(**values)
    if not options.model:
        raise InvalidOption(
            "missing argument: model",
            where=f"--model_args of `{model_name}`",
            hint="pass model=NAME, the server's name of the model",
        )
    options.address()
    return options


def _build_unknown_argument_error(who: str, name: str, known: Sequence[str]) -> InvalidOption:
    close = get_close_matches(name, known, n=1)
    guess = f"did you mean `{close[0]}`?" if close else f"it takes {', '.join(sorted(known))}"
    return InvalidOption(f"the model `{who}` has no argument `{name}`", where="--model_args", hint=guess)
