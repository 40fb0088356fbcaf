"""Read and write the files of a corpus: JSON lines, compressed with zstandard or plain.

This module does not import Assay: the recorder uses it inside the harness's environment.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["CorpusError", "detect_harness", "read_lines", "read_records", "write_records"]

_COMPRESSION_LEVEL = 19


class CorpusError(Exception):
    """A corpus is missing or cannot be read."""


def detect_harness(folder: Path) -> str:
    """Return the harness a corpus was recorded from: `lm_eval`, `lmms_eval` or `bfcl`."""
    if folder.is_file() or any(folder.glob("verdicts*.jsonl*")):
        return "bfcl"
    if any(folder.glob("tasks-*.jsonl*")):
        return "lm_eval"
    if any(folder.glob("records-*.jsonl*")):
        return "lmms_eval"
    raise CorpusError(
        f"no recorded corpus in `{folder}`\nhint: a corpus contains tasks-NN.jsonl.zst, records-NN.jsonl.zst or verdicts.jsonl.zst"
    )


def read_records(folder: Path, pattern: str) -> Iterator[dict[str, Any]]:
    """Read every record of the matching files, in order."""
    for path in sorted(folder.glob(pattern)):
        yield from read_lines(path)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Read every record of a file."""
    with _open_text(path) as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def _open_text(path: Path) -> io.TextIOBase:
    if path.suffix != ".zst":
        return path.open(encoding="utf-8")
    reader = (
        _load_zstandard().ZstdDecompressor(max_window_size=2**31).stream_reader(path.open("rb"), closefd=True)
    )
    return io.TextIOWrapper(reader, encoding="utf-8")


def write_records(path: Path, records: Iterable[Any]) -> None:
    """Write records as JSON lines; compress them if the file's name ends with `.zst`."""
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    data = text.encode("utf-8", "surrogatepass")
    if path.suffix == ".zst":
        zstandard = _load_zstandard()
        parameters = zstandard.ZstdCompressionParameters.from_level(
            _COMPRESSION_LEVEL, window_log=26, enable_ldm=True
        )
        data = zstandard.ZstdCompressor(compression_params=parameters).compress(data)
    path.write_bytes(data)


def _load_zstandard() -> Any:
    try:
        import zstandard
    except ModuleNotFoundError:
        raise CorpusError(
            "a compressed corpus needs the package `zstandard`\nhint: pip install zstandard"
        ) from None
    return zstandard
