"""What a server supports, cached for a day."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from assay.core.fingerprints import digest_text
from assay.core.home import assay_home
from assay.core.secrets import redact

__all__ = ["ServerCapabilities", "load_capabilities", "save_capabilities"]

_MAX_AGE_S = 24 * 3600.0
_FORMAT = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCapabilities:
    """What a server supports, found by probing. None: not probed."""

    generates: bool | None = None
    images: bool | None = None
    audio: bool | None = None
    n: bool | None = None
    """Several answers to one prompt per call."""

    logprobs: bool | None = None
    """Log-probabilities of generated tokens."""

    tools: bool | None = None
    """Tool calls. Probed only for tasks with tools."""

    prompt_scores: str = ""
    """How the server returns log-probabilities of a prompt: `echo`, `prompt_logprobs`; empty: not at all."""

    echo_tokens: int = 1
    """Smallest `max_tokens` with which `echo` works."""

    many_prompts: bool | None = None
    """Several prompts per call."""

    token_prompts: bool | None = None
    """Prompts as token ids."""

    long_limit_name: bool = False
    """Whether the length limit is called `max_completion_tokens`."""

    refused: frozenset[str] = frozenset()
    """Settings the server rejects."""

    model: str = ""
    """The model name in the server's replies."""

    system_fingerprint: str = ""
    max_length: int | None = None
    notes: tuple[str, ...] = ()
    at: float = 0.0

    def to_facts(self) -> dict[str, Any]:
        """Return the capabilities to store with a run."""
        plain: dict[str, Any] = asdict(self)
        plain["refused"] = sorted(self.refused)
        return {key: value for key, value in plain.items() if value not in (None, "", (), [], False)}


def _build_path(server: str) -> Path:
    return assay_home() / "servers" / f"{digest_text(server, _FORMAT)}.json"


def load_capabilities(server: str, identity: Mapping[str, Any] | None) -> ServerCapabilities | None:
    """Return the cached capabilities of a server; None if they are older than a day or the server has changed.

    `identity` is what the server currently reports about the model; None if it reports nothing.
    """
    try:
        cached = json.loads(_build_path(server).read_text(encoding="utf-8"))
        names = {one.name for one in fields(ServerCapabilities)}
        values = {key: value for key, value in cached["seen"].items() if key in names}
        values["refused"] = frozenset(values.get("refused", ()))
        values["notes"] = tuple(values.get("notes", ()))
        capabilities = ServerCapabilities(**values)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if time.time() - capabilities.at > _MAX_AGE_S or cached.get("identity") != identity:
        return None
    return capabilities


def save_capabilities(
    server: str, identity: Mapping[str, Any] | None, capabilities: ServerCapabilities
) -> ServerCapabilities:
    """Cache the capabilities of a server. Ignores a cache folder that is not writable."""
    capabilities = replace(capabilities, at=time.time())
    plain = {
        **asdict(capabilities),
        "refused": sorted(capabilities.refused),
        "notes": list(capabilities.notes),
    }
    path = _build_path(server)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{time.monotonic_ns()}")
        temporary.write_text(
            redact(json.dumps({"server": server, "identity": identity, "seen": plain})), "utf-8"
        )
        temporary.replace(path)
    return capabilities
