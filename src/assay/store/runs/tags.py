"""Words people put on runs: a small file beside the journal, which nobody but the viewer writes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from assay.core.errors import InvalidOption, OutputError

__all__ = ["TAGS_FILE", "read_tags", "write_tags"]

TAGS_FILE = "tags.json"
_MAX_TAGS, _MAX_TAG_LENGTH = 20, 40


def read_tags(folder: Path) -> list[str]:
    """The tags of a run; none where nobody gave it any."""
    try:
        content = json.loads((folder / TAGS_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return []
    found = content.get("tags") if isinstance(content, dict) else None
    return [str(tag) for tag in found] if isinstance(found, list) else []


def write_tags(folder: Path, tags: Iterable[str]) -> list[str]:
    """Give a run these tags instead of those it has; returns them as they are kept.

    Raises:
        InvalidOption: Too many, or too long.
        OutputError: The folder cannot be written.
    """
    kept = list(dict.fromkeys(word for word in (" ".join(tag.split()) for tag in tags) if word))
    if len(kept) > _MAX_TAGS or any(len(tag) > _MAX_TAG_LENGTH for tag in kept):
        raise InvalidOption(f"at most {_MAX_TAGS} tags of {_MAX_TAG_LENGTH} letters")
    path = folder / TAGS_FILE
    waiting = path.with_name(f".{TAGS_FILE}.{os.getpid()}")
    try:
        if kept:
            waiting.write_text(json.dumps({"tags": kept}, ensure_ascii=False) + "\n", "utf-8")
            waiting.replace(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"the tags cannot be written: {error.strerror}", where=str(path)) from None
    return kept
