"""Events as lines of JSON, for programs that follow a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.core.errors import BadOption
from assay.viewer.sinks import SINKS

__all__ = ["Lines"]


@SINKS.register("jsonl")
class Lines:
    """Appends every event to a file: `--sink jsonl,path=events.jsonl`."""

    def __init__(self, *, path: str = "") -> None:
        if not path:
            raise BadOption(
                "the sink `jsonl` needs a file", where="--sink", hint="--sink jsonl,path=events.jsonl"
            )
        self._path = Path(path).expanduser()

    def emit(self, event: str, facts: Mapping[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **facts}, default=str) + "\n")
