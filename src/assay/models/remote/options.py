"""The arguments of models behind HTTP, under the names people know from other harnesses."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from assay.core.errors import BadOption
from assay.core.parsing import parse_switch
from assay.core.secrets import know_secret
from assay.models.credentials import find_key, refuse_keys
from assay.models.remote.address import Address, parse_address
from assay.models.remote.endpoint import Endpoint
from assay.models.remote.faults import Patience
from assay.models.remote.traffic import START

__all__ = ["Options", "read_options"]

_OTHER_NAMES = {
    "pretrained": "model",
    "model_version": "model",
    "max_frames": "max_frames_num",
    "nframes": "max_frames_num",
    "video_fps": "fps",
    "auth_token_env": "api_key_env",
    "max_new_tokens": "max_gen_toks",
}
"""What else an argument is called elsewhere."""

_WITHOUT_EFFECT = frozenset(
    """
    adaptive_concurrency adaptive_decrease_factor adaptive_failure_threshold adaptive_increase_step
    adaptive_max_concurrency adaptive_min_concurrency adaptive_target_latency_s device httpx_trust_env is_qwen3_vl
    max_batch_size max_images min_pixels num_cpus prefix_aware_queue prefix_hash_chars trust_remote_code truncate
    use_fast_tokenizer work_dir
    """.split()
)
"""Arguments of other harnesses that decide nothing here: concurrency always adapts, media are never left out."""

_HOST_KEYS = {
    "openrouter.ai": "OPENROUTER_API_KEY",
    "api.x.ai": "XAI_API_KEY",
    "api.together.xyz": "TOGETHER_API_KEY",
    "api.groq.com": "GROQ_API_KEY",
    "api.deepseek.com": "DEEPSEEK_API_KEY",
    "api.mistral.ai": "MISTRAL_API_KEY",
    "api.fireworks.ai": "FIREWORKS_API_KEY",
}
_CALLS = ("/chat/completions", "/completions", "/responses")
_LONGEST_WAIT_S = 30.0
_AT_ONCE = 32
_AZURE_VERSION = "2025-03-01-preview"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a model behind HTTP is told."""

    model: str = ""
    base_url: str = ""
    api: str = "chat"
    """`chat` for chat completions, `responses` for the responses API."""

    num_concurrent: int | None = None
    """The most calls open at once (32); how many really are, the server's answers decide."""

    max_retries: int = 8
    """Tries after the first."""

    retry_backoff_s: float = 0.5
    timeout: float = 300.0
    """Seconds one try may take."""

    total_timeout: float = 1800.0
    """Seconds all tries of one request may take."""

    rpm: float | None = None
    """Requests per minute; `--rpm` sets it for every model of a run."""

    tpm: float | None = None
    """Tokens per minute."""

    seed: int | None = 1234
    max_gen_toks: int = 256
    """Where a task gives no length."""

    max_length: int | None = None
    """Tokens a prompt and its continuation may have together."""

    verify_certificate: bool = True
    ca_cert_path: str = ""
    header: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """Further headers of every call. Not kept with the run."""

    api_key_env: str = ""
    """The environment variable that holds the key."""

    azure_openai: bool = False
    api_version: str = ""
    system_prompt: str = ""
    eos_string: str = ""
    """One more stop string."""

    think_end_token: str = ""
    """What ends thinking that a server leaves in the answer."""

    extra_body: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Further fields of every call."""

    image_format: str = "original"
    """`original` (a file as it is where it can be, else PNG), `png`, `jpeg` or `webp`."""

    max_pixels: int | None = None
    max_size_in_mb: float = 20.0
    max_frames_num: int = 10
    fps: float | None = None
    video: str = "frames"
    """`frames`, or `file` for servers that take videos whole."""

    probe: bool = True
    """Whether to try what the server can do before believing it."""

    batch_size: int = 1
    """Prompts in one call, where the server takes several."""

    tokenizer: str = ""
    tokenizer_backend: str = "auto"
    tokenized_requests: bool | None = None
    add_bos_token: bool = False
    custom_prefix_token_id: int | None = None
    revision: str = ""

    @property
    def most_at_once(self) -> int:
        """The most calls open at once."""
        return _AT_ONCE if self.num_concurrent is None else max(1, self.num_concurrent)

    @property
    def first_at_once(self) -> int:
        """How many to begin with: few, unless somebody who may know the server named a number."""
        return START if self.num_concurrent is None else min(_AT_ONCE, self.most_at_once)

    @property
    def key_variables(self) -> tuple[str, ...]:
        """Where the key is looked for."""
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
        """Whether it is OpenAI's own service, which is stricter than those that speak its protocol."""
        return self.is_azure or self.address().host == "api.openai.com"

    @property
    def wants_key(self) -> bool:
        """Whether the service is known to answer nobody without one."""
        return bool(self.api_key_env) or self.is_openai or self.address().host in _HOST_KEYS

    def address(self) -> Address:
        """Where calls go: given with or without the path of the call itself."""
        if self.azure_openai or ".openai.azure.com" in self.base_url:
            return self._azure_address()
        text = self.base_url or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE")
        address = parse_address(text or "https://api.openai.com/v1", where="base_url")
        path = address.path
        for call in _CALLS:
            path = path.removesuffix(call)
        return Address(address.scheme, address.host, address.port, path or "/v1", address.query)

    def _azure_address(self) -> Address:
        names = ("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_BASE")
        given = self.base_url or next((os.environ[name] for name in names if os.environ.get(name)), "")
        address = parse_address(given, where="base_url")
        path = address.path
        for call in _CALLS:
            path = path.removesuffix(call)
        if "/deployments/" not in path:
            path = f"{path.removesuffix('/openai')}/openai/deployments/{self.model}"
        version = self.api_version or os.environ.get("AZURE_OPENAI_API_VERSION") or _AZURE_VERSION
        return Address(
            address.scheme, address.host, address.port, path, address.query or f"api-version={version}"
        )

    def endpoint(self) -> Endpoint:
        """The server, ready to be called. Reads the key."""
        key = find_key(self.key_variables)
        if key is None and self.wants_key:
            raise BadOption(
                f"there is no key for {self.address().origin}",
                where="environment",
                hint=f"export {self.key_variables[0]}=…, or name another variable with api_key_env=NAME",
            )
        headers = dict(self.header)
        if key is not None:
            headers |= {"api-key": key} if self.is_azure else {"Authorization": f"Bearer {key}"}
        return Endpoint(
            self.address(),
            headers=headers,
            key_variable=self.key_variables[0],
            patience=Patience(
                retries=self.max_retries,
                timeout_s=self.timeout,
                total_s=self.total_timeout,
                first_wait_s=self.retry_backoff_s,
                longest_wait_s=min(_LONGEST_WAIT_S, 60 * self.retry_backoff_s),
            ),
            num_concurrent=self.most_at_once,
            start=self.first_at_once,
            rpm=self.rpm,
            tpm=self.tpm,
            verify_certificate=self.verify_certificate,
            ca_cert_path=self.ca_cert_path,
        )


def _text(value: Any) -> str:
    if isinstance(value, (Mapping, list)):
        raise ValueError
    return "" if value is None else str(value)


def _switch(value: Any) -> bool:
    return value if isinstance(value, bool) else parse_switch(str(value))


def _count(value: Any) -> int:
    if isinstance(value, bool) or int(value) != float(value) or int(value) < 0:
        raise ValueError
    return int(value)


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not float(value) > 0:
        raise ValueError
    return float(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError
    return dict(value)


def _headers(value: Any) -> Mapping[str, str]:
    """Headers may hold keys: none of their values is shown from here on."""
    return {str(name): know_secret(str(text)) for name, text in _mapping(value).items()}


def _one_of(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if str(value).lower() not in words:
            raise ValueError
        return str(value).lower()

    return read


_READERS: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    **dict.fromkeys(("verify_certificate", "azure_openai", "probe", "tokenized_requests", "add_bos_token"), (_switch, "true or false")),
    **dict.fromkeys(("num_concurrent", "max_retries", "seed", "max_gen_toks", "max_length", "max_pixels", "max_frames_num", "custom_prefix_token_id"), (_count, "a whole number")),
    **dict.fromkeys(("retry_backoff_s", "timeout", "total_timeout", "rpm", "tpm", "max_size_in_mb", "fps"), (_amount, "a number above 0")),
    "header": (_headers, "a JSON object of texts"),
    "extra_body": (_mapping, "a JSON object"),
    "api": (_one_of("chat", "responses"), "chat or responses"),
    "image_format": (_one_of("original", "png", "jpeg", "webp"), "original, png, jpeg or webp"),
    "video": (_one_of("frames", "file"), "frames or file"),
    "tokenizer_backend": (_one_of("auto", "huggingface", "tiktoken", "remote", "none"), "auto, huggingface, tiktoken, remote or none"),
    "batch_size": (lambda value: 1 if str(value).startswith("auto") else max(1, _count(value)), "a number"),
}  # fmt: skip


def read_options(who: str, arguments: Mapping[str, Any], known: Sequence[str], **defaults: Any) -> Options:
    """Check and read what a model was given.

    Raises:
        BadOption: A key among the arguments, an argument nobody knows, or one that makes no sense.
    """
    values: dict[str, Any] = dict(defaults)
    refuse_keys(arguments, variables=[str(arguments.get("api_key_env") or "OPENAI_API_KEY")])
    names = [one.name for one in fields(Options)]
    for given, value in arguments.items():
        name = _OTHER_NAMES.get(given, given)
        if name in _WITHOUT_EFFECT or (value is None and name != "seed"):
            continue
        if name not in names or (known and name not in known):
            raise _unknown(who, given, [*(known or names), *_OTHER_NAMES])
        reader, wanted = _READERS.get(name, (_text, "a text"))
        try:
            values[name] = None if value is None else reader(value)
        except (TypeError, ValueError, BadOption):
            shown = "" if name == "header" else f", not {value!r:.60}"
            raise BadOption(f"`{given}` must be {wanted}{shown}", where="--model_args") from None
    options = Options(**values)
    if not options.model:
        raise BadOption(
            f"the model `{who}` has to be told which one to ask",
            where="--model_args",
            hint="model=NAME, as the server calls it",
        )
    options.address()
    return options


def _unknown(who: str, name: str, known: Sequence[str]) -> BadOption:
    close = get_close_matches(name, known, n=1)
    guess = f"did you mean `{close[0]}`?" if close else f"it takes {', '.join(sorted(known))}"
    return BadOption(
        f"the model `{who}` does not know the argument `{name}`", where="--model_args", hint=guess
    )
