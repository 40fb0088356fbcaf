"""What a server was seen to do, remembered for a day."""

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

__all__ = ["Seen", "recall", "remember"]

_KEPT_S = 24 * 3600.0
_FORMAT = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was found by trying. None: nobody tried."""

    generates: bool | None = None
    images: bool | None = None
    audio: bool | None = None
    n: bool | None = None
    """Several answers to one prompt in one call."""

    logprobs: bool | None = None
    """Log-probabilities of what it writes."""

    prompt_scores: str = ""
    """How it gives log-probabilities of a prompt: `echo`, `prompt_logprobs`, or not at all."""

    echo_tokens: int = 1
    """The least `max_tokens` with which echo works."""

    many_prompts: bool | None = None
    """Several prompts in one call."""

    token_prompts: bool | None = None
    """Prompts as token numbers."""

    tokenizes: bool | None = None
    """Whether it has `/tokenize`."""

    long_limit_name: bool = False
    """Whether the length is called `max_completion_tokens`."""

    refused: frozenset[str] = frozenset()
    """Settings it does not take."""

    model: str = ""
    """What it says it is."""

    system_fingerprint: str = ""
    max_length: int | None = None
    notes: tuple[str, ...] = ()
    at: float = 0.0

    def facts(self) -> dict[str, Any]:
        """What is worth keeping with a run."""
        plain: dict[str, Any] = asdict(self)
        plain["refused"] = sorted(self.refused)
        return {key: value for key, value in plain.items() if value not in (None, "", (), [], False)}


def _path(server: str) -> Path:
    return assay_home() / "servers" / f"{digest_text(server, _FORMAT)}.json"


def recall(server: str, identity: Mapping[str, Any] | None) -> Seen | None:
    """What was seen of a server within the last day, if it still says it is the same one.

    `identity` is what it says of itself now; None where it did not answer.
    """
    try:
        kept = json.loads(_path(server).read_text(encoding="utf-8"))
        names = {one.name for one in fields(Seen)}
        values = {key: value for key, value in kept["seen"].items() if key in names}
        values["refused"] = frozenset(values.get("refused", ()))
        values["notes"] = tuple(values.get("notes", ()))
        seen = Seen(**values)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if time.time() - seen.at > _KEPT_S or kept.get("identity") != identity:
        return None
    return seen


def remember(server: str, identity: Mapping[str, Any] | None, seen: Seen) -> Seen:
    """Keep what was seen. A home that cannot be written is no reason to stop."""
    seen = replace(seen, at=time.time())
    plain = {**asdict(seen), "refused": sorted(seen.refused), "notes": list(seen.notes)}
    path = _path(server)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        waiting = path.with_suffix(f".{time.monotonic_ns()}")
        waiting.write_text(json.dumps({"server": server, "identity": identity, "seen": plain}), "utf-8")
        waiting.replace(path)
    return seen
