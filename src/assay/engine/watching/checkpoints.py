"""Finds the checkpoints of a training run and tells finished ones from those that are still being written."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from assay.core.errors import InvalidOption

__all__ = [
    "DEFAULT_PATTERNS",
    "Checkpoint",
    "CheckpointFinder",
    "compute_stamp",
    "describe_incomplete",
    "parse_step",
]

DEFAULT_PATTERNS = (
    "checkpoint-*", "checkpoint_*", "step_*", "step-*", "step[0-9]*", "global_step*", "iter_*", "epoch_*", "epoch-*",
)  # fmt: skip

_TEMPORARY = re.compile(r"^(\.|tmp[-_])|\.(tmp|temp|part|partial|incomplete|new)$|\.tmp[-_.]", re.IGNORECASE)
_TRAINER_FILES = re.compile(
    r"^(optimizer|scheduler|scaler|rng_state|trainer_state|training_args)\b|_state\.json$"
)
"""Files that belong to the training and not to the model."""

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_SHARD = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.\w+)$")
_STEP_KEYWORDS = (r"steps?", r"iter(?:ation)?s?", r"(?:checkpoint|ckpt)", r"epochs?")
_NUMBER = r"\d+(?:\.\d+)?(?:e\d+(?![^\W_]))?"
"""A number with decimals, or with an exponent such as 1e3."""

_MAX_HEADER_BYTES = 100_000_000
"""The limit of the safetensors format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint on disk."""

    name: str
    """The path below the watched folder."""

    path: Path
    step: float | None
    """The training step in its name; None if there is no number."""

    stamp: str
    """Digest of the names, sizes and times of its files."""

    incomplete: str = ""
    """Why it cannot be evaluated yet; empty if it is finished."""

    settling: bool = False
    """Whether only the time since its last change is missing."""


def parse_step(name: str) -> float | None:
    """Return the training step in a name: the number after `step`, `iter`, `checkpoint` or `epoch` (the first of them that is there) in
    the first part of the path that has one, or else the last number of the first part with a number.

    >>> parse_step("checkpoint-500-bf16"), parse_step("epoch_2-step_1200/hf4"), parse_step("epoch_0.5"), parse_step("final")
    (500.0, 1200.0, 0.5, None)
    """
    parts = name.split("/")
    for part in parts:
        for keyword in _STEP_KEYWORDS:
            if found := re.search(rf"{keyword}[-_=]?({_NUMBER})", part, re.IGNORECASE):
                return float(found[1])
    for part in parts:
        if numbers := re.findall(r"\d+", part):
            return float(numbers[-1])
    return None


@dataclass(slots=True)
class CheckpointFinder:
    """Finds checkpoints in a folder that a training run writes to."""

    folder: Path
    patterns: Sequence[str] = DEFAULT_PATTERNS
    done_marker: str = ""
    """A file that the training writes last; empty: none."""

    settle_s: float = 10.0
    """A checkpoint without a marker is finished when its files did not change for this many seconds."""

    _seen: dict[str, tuple[str, float]] = field(default_factory=dict)
    """The stamp of each checkpoint and when it was first seen, by the monotonic clock."""

    _complete: dict[str, str] = field(default_factory=dict)
    """The stamp with which each checkpoint was found complete, so that its files are not read again."""

    def find(self, extra: Iterable[str] = ()) -> list[Checkpoint]:
        """Return all checkpoints, sorted by step. `extra`: names that do not match the patterns.

        Raises:
            InvalidOption: The folder does not exist, or a pattern is invalid.
        """
        if not self.folder.is_dir():
            raise InvalidOption(
                f"there is no folder `{self.folder}`",
                where="CHECKPOINTS",
                hint="give the folder that the training writes its checkpoints to",
            )
        found = {}
        for path in self._list_paths(extra):
            name = path.relative_to(self.folder).as_posix()
            if name not in found and not any(_TEMPORARY.search(part) for part in name.split("/")):
                with suppress(FileNotFoundError, NotADirectoryError):  # deleted while it was read
                    found[name] = self._inspect(name, path)
        return sorted(found.values(), key=lambda one: (one.step is None, one.step or 0.0, one.name))

    def find_enclosing(self, name: str) -> str | None:
        """Return the checkpoint that a file or folder is a part of; None if it is a checkpoint of its own.

        A part is inside a folder that matches a pattern or has a config.json, matches no pattern itself, and is no folder with weights.
        """
        path = self.folder / name
        if self._matches_pattern(path) or (path.is_dir() and _has_weights(path)):
            return None
        parents = [parent for parent in path.parents if self.folder in parent.parents]
        for parent in reversed(parents):
            if self._matches_pattern(parent) or (parent / "config.json").exists():
                return parent.relative_to(self.folder).as_posix()
        return None

    def _matches_pattern(self, path: Path) -> bool:
        return any(path in self.folder.glob(pattern) for pattern in self.patterns)

    def _list_paths(self, extra: Iterable[str]) -> Iterator[Path]:
        for pattern in self.patterns:
            try:
                yield from sorted(self.folder.glob(pattern))
            except (ValueError, NotImplementedError, OSError) as error:
                raise InvalidOption(f"invalid pattern `{pattern}`: {error}", where="--pattern") from None
        for name in extra:
            if (path := self.folder / name).exists():
                yield path

    def _inspect(self, name: str, path: Path) -> Checkpoint:
        stamp = compute_stamp(path)
        incomplete, waits = "", False
        if self._complete.get(name) != stamp:
            incomplete, settled = describe_incomplete(path, self.done_marker)
            waits = not incomplete and not settled and not self._has_settled(name, path, stamp)
            if not incomplete and not waits:
                self._complete[name] = stamp
        return Checkpoint(
            name=name,
            path=path,
            step=parse_step(name),
            stamp=stamp,
            incomplete="changed a moment ago" if waits else incomplete,
            settling=waits,
        )

    def _has_settled(self, name: str, path: Path, stamp: str) -> bool:
        """Whether the files are old enough, by their times or, if clocks differ, by what was seen here."""
        age = time.time() - max((file.stat().st_mtime for file in _list_files(path)), default=0.0)
        now = time.monotonic()
        seen, since = self._seen.get(name, ("", now))
        if seen != stamp:
            self._seen[name] = (stamp, now)
            since = now
        return age >= self.settle_s or now - since >= self.settle_s


def _list_files(path: Path) -> list[Path]:
    """Return the file, or the files in a folder and its subfolders."""
    return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())


def _has_weights(folder: Path) -> bool:
    """Whether a folder has files of weights of its own, not in subfolders."""
    return any(file.suffix in _WEIGHTS and not _TRAINER_FILES.search(file.name) for file in folder.iterdir())


def compute_stamp(path: Path) -> str:
    """Return a digest of the names, sizes and times of the files of a model; training state is left out.

    Raises:
        FileNotFoundError: The checkpoint was deleted.
    """
    hasher = hashlib.sha256()
    path.stat()
    for file in _list_files(path):
        if not _TRAINER_FILES.search(file.name):
            facts = file.stat()
            hasher.update(
                f"{file.relative_to(path).as_posix()} {facts.st_size} {facts.st_mtime_ns}\n".encode()
            )
    return hasher.hexdigest()[:32]


def describe_incomplete(path: Path, done_marker: str = "") -> tuple[str, bool]:
    """Return why a checkpoint is incomplete (empty if it is not), and whether its writer said that it is finished.

    The writer says so with a done marker, or with `trainer_state.json`, which the Trainer of transformers writes after the model.

    >>> describe_incomplete(Path("/nowhere"))
    ('it is deleted', False)
    """
    if not path.exists():
        return "it is deleted", False
    files = _list_files(path)
    names = {file.name for file in files}
    if done_marker:
        beside = path.with_name(f"{path.name}{done_marker}")
        if not (path.is_dir() and any(path.glob(done_marker))) and not beside.exists():
            return f"there is no `{done_marker}` yet", False
    if partial := sorted(name for name in names if _TEMPORARY.search(name) and not name.startswith(".")):
        return f"`{partial[0]}` is being written", False
    if path.is_dir() and (reason := _describe_missing_files(path, names, needs_weights=not done_marker)):
        return reason, False
    for file in files:
        if file.suffix == ".safetensors" and (reason := _describe_truncation(file)):
            return reason, False
    return "", bool(done_marker) or _is_json(path / "trainer_state.json")


def _describe_missing_files(path: Path, names: set[str], *, needs_weights: bool) -> str:
    """Return which file of a model folder is missing; empty if none is."""
    weights = sorted(name for name in names if name.endswith(_WEIGHTS) and not _TRAINER_FILES.search(name))
    if not weights:
        return "it has no weights" if needs_weights else ""
    for index in sorted(path.glob("*.index.json")):
        try:
            listed = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            return f"`{index.name}` is incomplete"
        if missing := sorted(listed - names):
            return f"`{missing[0]}` of `{index.name}` is missing"
    for name in weights:
        if shard := _SHARD.match(name):
            if not (path / f"{shard['stem']}{shard['suffix']}.index.json").exists():
                return f"`{shard['stem']}{shard['suffix']}.index.json` is missing"
            for number in range(1, int(shard["count"]) + 1):
                sibling = f"{shard['stem']}-{number:05d}-of-{shard['count']}{shard['suffix']}"
                if sibling not in names:
                    return f"`{sibling}` is missing"
    has_folder_format = any(name.endswith((".safetensors", ".bin")) for name in weights)
    if needs_weights and has_folder_format and not names & {"config.json", "adapter_config.json"}:
        return "it has no config.json"
    for config in names & {"config.json", "adapter_config.json"}:
        if (path / config).exists() and not _is_json(path / config):
            return f"`{config}` is incomplete"
    if "training_args.bin" in names and not _is_json(path / "trainer_state.json"):
        return "`trainer_state.json` is missing"
    return ""


def _describe_truncation(file: Path) -> str:
    """Return what is wrong with a safetensors file; empty if its header is valid and all bytes of its tensors are there."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > min(size, _MAX_HEADER_BYTES):
                return f"`{file.name}` is truncated"
            header = json.loads(stream.read(length))
        ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
        if size < 8 + length + max(ends, default=0):
            return f"`{file.name}` is truncated: {size:,} of {8 + length + max(ends, default=0):,} bytes"
    except FileNotFoundError:
        return f"`{file.name}` was deleted"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error):
        return f"`{file.name}` is truncated"
    return ""


def _is_json(path: Path) -> bool:
    """Whether a file holds complete JSON."""
    try:
        json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return True
