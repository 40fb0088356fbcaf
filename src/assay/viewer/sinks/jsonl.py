"""The sink `jsonl`: appends events to a JSON Lines file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption
from assay.viewer.sinks import SINKS

__all__ = ["JsonlSink"]


@SINKS.register("jsonl")
class JsonlSink:
    """Append every event to a JSON Lines file: `--sink jsonl,path=events.jsonl`."""

    def __init__(self, *, path: str = "") -> None:
        if not path:
            raise InvalidOption(
                "the sink `jsonl` needs a file", where="--sink", hint="--sink jsonl,path=events.jsonl"
            )
        self._path = Path(path).expanduser()

    def emit(self, event: str, facts: Mapping[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **facts}, default=str) + "\n")
