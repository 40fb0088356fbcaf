"""Words people put on runs: a small file beside the journal, which nobody but the viewer writes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from assay.core.errors import BadOption, BadOutput

__all__ = ["FILE", "read_tags", "write_tags"]

FILE = "tags.json"
_MOST, _LONGEST = 20, 40


def read_tags(folder: Path) -> list[str]:
    """The tags of a run; none where nobody gave it any."""
    try:
        content = json.loads((folder / FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return []
    found = content.get("tags") if isinstance(content, dict) else None
    return [str(tag) for tag in found] if isinstance(found, list) else []


def write_tags(folder: Path, tags: Iterable[str]) -> list[str]:
    """Give a run these tags instead of those it has; returns them as they are kept.

    Raises:
        BadOption: Too many, or too long.
        BadOutput: The folder cannot be written.
    """
    kept = list(dict.fromkeys(word for word in (" ".join(tag.split()) for tag in tags) if word))
    if len(kept) > _MOST or any(len(tag) > _LONGEST for tag in kept):
        raise BadOption(f"at most {_MOST} tags of {_LONGEST} letters")
    path = folder / FILE
    waiting = path.with_name(f".{FILE}.{os.getpid()}")
    try:
        if kept:
            waiting.write_text(json.dumps({"tags": kept}, ensure_ascii=False) + "\n", "utf-8")
            waiting.replace(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise BadOutput(f"the tags cannot be written: {error.strerror}", where=str(path)) from None
    return kept
