"""Tags of runs, stored in a small file next to the journal. Only the viewer writes them."""

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
    """Return the tags of a run."""
    try:
        content = json.loads((folder / TAGS_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return []
    found = content.get("tags") if isinstance(content, dict) else None
    return [str(tag) for tag in found] if isinstance(found, list) else []


def write_tags(folder: Path, tags: Iterable[str]) -> list[str]:
    """Replace the tags of a run; return them as stored.

    Raises:
        InvalidOption: There are too many tags, or one is too long.
        OutputError: The folder cannot be written.
    """
    cleaned = list(dict.fromkeys(word for word in (" ".join(tag.split()) for tag in tags) if word))
    if len(cleaned) > _MAX_TAGS or any(len(tag) > _MAX_TAG_LENGTH for tag in cleaned):
        raise InvalidOption(f"at most {_MAX_TAGS} tags of {_MAX_TAG_LENGTH} characters are allowed")
    path = folder / TAGS_FILE
    temporary = path.with_name(f".{TAGS_FILE}.{os.getpid()}")
    try:
        if cleaned:
            temporary.write_text(json.dumps({"tags": cleaned}, ensure_ascii=False) + "\n", "utf-8")
            temporary.replace(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write the tags: {error.strerror}", where=str(path)) from None
    return cleaned
