"""Seeded damages of the journals of killed runs, and the checks that every one of them must pass.

A killed run leaves a journal without page checksums: a database file and usually a write-ahead log. After any damage, the
commands must agree on whether the journal is damaged, and resuming must end with the tables of a run without damage.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.flows.running import read_tables
from tests.making import make_model, write_choices, write_task

import assay
from assay import api
from assay.core.errors import CorruptStore
from assay.core.records.requests import Request
from assay.core.records.responses import Outcome
from assay.store.journal.journal import JOURNAL_FILE
from assay.store.runs.lookup import summarise_run
from assay.store.runs.maintenance import repair_run
from assay.store.runs.run import Run
from assay.testing import ScriptedModel

PAGE_BYTES = 4096
SAMPLING = {"do_sample": True, "temperature": 0.7}
Damage = Callable[[Path, random.Random], None]


def answer(request: Any) -> Any:
    """Answer mostly correctly, sometimes with texts longer than a database page."""
    from assay.core.records.responses import LogProbability

    if hasattr(request, "continuation"):
        return LogProbability(-1.0 - len(request.continuation) / 7 - request.document, False)
    number = int(request.prompt.text.partition("What is ")[2].partition(" +")[0])
    return str(number + 1 + request.repeat) if number % 40 != 7 else "I do not know. " * 700


# --- damages: each changes the files of a journal in place -----------------------------------------------


def flip_bytes(path: Path, draw: random.Random) -> None:
    """Change one to four bytes."""
    file = _choose_file(path, draw)
    data = bytearray(file.read_bytes())
    for _ in range(draw.choice([1, 1, 2, 4])):
        data[draw.randrange(len(data))] ^= draw.randrange(1, 256)
    file.write_bytes(data)


def flip_many_bytes(path: Path, draw: random.Random) -> None:
    """Change a hundred bytes anywhere."""
    file = _choose_file(path, draw)
    data = bytearray(file.read_bytes())
    for _ in range(100):
        data[draw.randrange(len(data))] ^= draw.randrange(1, 256)
    file.write_bytes(data)


def zero_range(path: Path, draw: random.Random) -> None:
    """Overwrite a range with zeros, like a lost sector."""
    _overwrite(_choose_file(path, draw), draw, bytes(draw.choice([512, 4096, 20_000])))


def write_noise(path: Path, draw: random.Random) -> None:
    """Overwrite a range with random bytes."""
    _overwrite(_choose_file(path, draw), draw, draw.randbytes(draw.choice([16, 512, 4096, 20_000])))


def truncate(path: Path, draw: random.Random) -> None:
    """Truncate a file."""
    file = _choose_file(path, draw)
    data = file.read_bytes()
    file.write_bytes(data[: draw.randrange(1, len(data))])


def swap_pages(path: Path, draw: random.Random) -> None:
    """Exchange two pages of the database file."""
    _checkpoint(path)
    data = bytearray(path.read_bytes())
    one, other = (draw.randrange(len(data) // PAGE_BYTES) * PAGE_BYTES for _ in range(2))
    data[one : one + PAGE_BYTES], data[other : other + PAGE_BYTES] = (
        data[other : other + PAGE_BYTES],
        data[one : one + PAGE_BYTES],
    )
    path.write_bytes(data)


def change_letters(path: Path, draw: random.Random) -> None:
    """Replace letters and digits by others: the structure of the file stays valid."""
    _checkpoint(path)
    data = bytearray(path.read_bytes())
    places = [match.start() for match in re.finditer(rb"[A-Za-z0-9]{4}", bytes(data))]
    for place in draw.sample(places, draw.choice([1, 1, 3, 10])):
        data[place] = ord(draw.choice("abcdefghijklmnopqrstuvwxyz0123456789".replace(chr(data[place]), "")))
    path.write_bytes(data)


def break_json(path: Path, draw: random.Random) -> None:
    """Replace quotes and brackets inside the records."""
    _checkpoint(path)
    data = bytearray(path.read_bytes())
    places = [match.start() for match in re.finditer(rb'["\[\]{}:,](?=["a-z])', bytes(data))]
    for place in draw.sample(places, draw.choice([1, 2, 5])):
        data[place] = ord("~")
    path.write_bytes(data)


def edit_record(path: Path, draw: random.Random) -> None:
    """Edit a column of one to ten records with SQL."""
    table, column = draw.choice(
        [
            ("asked", "fields"),
            ("asked", "target"),
            ("asked", "requests"),
            ("judged", "verdicts"),
            ("judged", "verdicts"),
            ("judged", "answers"),
            ("judged", "outcome"),
            ("answered", "text"),
            ("answered", "source"),
            ("facts", "value"),
            ("repeats", "content"),
        ]
    )
    with closing(sqlite3.connect(path)) as journal:
        keys = [key for (key,) in journal.execute(f"SELECT {_get_key(table)} FROM {table}")]
        for key in draw.sample(keys, min(len(keys), draw.choice([1, 3, 10]))):
            ((value,),) = journal.execute(f"SELECT {column} FROM {table} WHERE {_get_key(table)} = ?", (key,))
            edited = _edit_text(str(value or "x"), draw)
            journal.execute(f"UPDATE {table} SET {column} = ? WHERE {_get_key(table)} = ?", (edited, key))
        journal.commit()


def delete_records(path: Path, draw: random.Random) -> None:
    """Delete records with SQL."""
    table = draw.choice(["asked", "answered", "judged", "facts", "repeats"])
    with closing(sqlite3.connect(path)) as journal:
        keys = [key for (key,) in journal.execute(f"SELECT {_get_key(table)} FROM {table}")]
        for key in draw.sample(keys, min(len(keys), draw.choice([1, 3, 10]))):
            journal.execute(f"DELETE FROM {table} WHERE {_get_key(table)} = ?", (key,))
        journal.commit()


def exchange_records(path: Path, draw: random.Random) -> None:
    """Exchange the contents of two records, each valid by itself."""
    table = draw.choice(["asked", "answered", "judged"])
    with closing(sqlite3.connect(path)) as journal:
        columns = [name for _, name, *_ in journal.execute(f"PRAGMA table_info({table})")][1:]
        keys = [key for (key,) in journal.execute(f"SELECT id FROM {table}")]
        if len(keys) < 2:
            return
        pair = draw.sample(keys, 2)
        found = [
            journal.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE id = ?", (key,)).fetchone()
            for key in pair
        ]
        for key, values in zip(pair, reversed(found), strict=True):
            changes = ", ".join(f"{name} = ?" for name in columns)
            journal.execute(f"UPDATE {table} SET {changes} WHERE id = ?", (*values, key))
        journal.commit()


def lose_write_ahead_log(path: Path, draw: random.Random) -> None:
    """Delete the write-ahead log, or damage its header."""
    wal = path.with_name(f"{path.name}-wal")
    if not wal.exists() or not wal.stat().st_size:
        truncate(path, draw)
    elif draw.random() < 0.5:
        wal.unlink()
    else:
        data = bytearray(wal.read_bytes())
        data[draw.randrange(32)] ^= draw.randrange(1, 256)
        wal.write_bytes(data)


DAMAGES: dict[str, Damage] = {
    "one to four bytes": flip_bytes,
    "a hundred bytes": flip_many_bytes,
    "zeros": zero_range,
    "noise": write_noise,
    "truncated": truncate,
    "pages exchanged": swap_pages,
    "letters": change_letters,
    "broken JSON": break_json,
    "edited with SQL": edit_record,
    "deleted with SQL": delete_records,
    "records exchanged": exchange_records,
    "log lost": lose_write_ahead_log,
}


def _get_key(table: str) -> str:
    return "key" if table == "facts" else "id"


def _edit_text(text: str, draw: random.Random) -> str:
    """Change a score, else a letter."""
    if (other := text.replace("1.0", "0.0") if "1.0" in text else text.replace("0.0", "1.0")) != text:
        return other
    place = draw.randrange(len(text))
    return f"{text[:place]}{draw.choice('xyz7').replace(text[place], 'w')}{text[place + 1 :]}"


def _choose_file(path: Path, draw: random.Random) -> Path:
    """Choose the database or its write-ahead log, by size."""
    files = [file for file in (path, path.with_name(f"{path.name}-wal")) if file.exists()]
    return draw.choices(files, [file.stat().st_size for file in files])[0]


def _overwrite(file: Path, draw: random.Random, noise: bytes) -> None:
    data = bytearray(file.read_bytes())
    start = draw.randrange(len(data))
    data[start : start + len(noise)] = noise[: len(data) - start]
    file.write_bytes(data)


def _checkpoint(path: Path) -> None:
    """Move the write-ahead log into the database file, as the next opening does."""
    with closing(sqlite3.connect(path)) as journal:
        journal.execute("PRAGMA wal_checkpoint(TRUNCATE)")


# --- the run that is damaged ---------------------------------------------------------------------------


@dataclass(slots=True)
class DamageCounts:
    """Counts of one kind of damage."""

    damages: int = 0
    states: Counter[str] = field(default_factory=Counter)
    """`damaged`, or `intact` if only the newest records are missing."""

    asked_again: int = 0
    """Stored answers that were requested again, because their records were damaged."""

    recovered: int = 0
    """Stored answers that were not requested again."""


class _CopyingModel(ScriptedModel):
    """Answers slowly, so that the journal is written meanwhile, and copies the run after some requests."""

    def __init__(self, copy: Callable[[str], None], kill_points: set[int]) -> None:
        super().__init__(answer, name="for-damages", window=4)
        self._copy = copy
        self._kill_points = kill_points

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        await asyncio.sleep(0.01)
        if any(len(self.asked) <= point < len(self.asked) + len(window) for point in self._kill_points):
            self._copy(f"killed-{len(self.asked)}")
        async for outcome in super().answer(window):
            yield outcome


class DamageTest:
    """A run without faults, and copies of its folder as a kill would have left it at several moments."""

    def __init__(self, folder: Path, *, documents: int = 24) -> None:
        self.folder = folder
        rows = [
            {"question": f"What is {n} + 1?", "answer": str(n + 1 if n % 3 else n)} for n in range(documents)
        ]
        self.tasks = [
            str(write_task(folder, "sums", rows)),
            str(write_choices(folder, rows=documents // 2)),
            str(write_task(folder, "votes", rows[: documents // 3], repeats=3, generation_kwargs=SAMPLING)),
        ]
        self.templates: list[Path] = []
        total = documents * 3
        with closing(
            self._run("whole", _CopyingModel(self._copy_as_killed, {total // 4, total // 2, total - 4}))
        ) as run:
            self.run_id = run.id
            self.expected = read_tables(run.folder)
            self.samples = {task: list(run.samples(task)) for task in run.tasks}
        killed_late = (
            self.folder / "killed-late"
        )  # everything is stored, the estimates included; the end is not
        shutil.copytree(self.folder / "whole" / self.run_id, killed_late)
        (killed_late / "journal.sums").unlink()
        self.templates.append(killed_late)
        self.counts: dict[str, DamageCounts] = {}

    def _copy_as_killed(self, name: str) -> None:
        (source,) = (self.folder / "whole").glob(f"*/{JOURNAL_FILE}")
        shutil.copytree(source.parent, self.folder / name)
        self.templates.append(self.folder / name)

    def _run(self, output: str, model: ScriptedModel | None = None) -> Any:
        self.model = model or make_model(answer, name="for-damages", window=4)
        return assay.run(
            model=self.model,
            tasks=self.tasks,
            output_path=str(self.folder / output),
            log_samples=False,
            no_cache=True,
        )

    def check(self, kind: str, seed: int) -> None:
        """Damage a copy of a killed run, and check that every command treats the damage alike."""
        draw = random.Random(f"{kind} {seed}")
        output = f"{kind}-{seed}"
        folder = self.folder / output / self.run_id
        shutil.copytree(draw.choice(self.templates), folder)
        stored = _count_responses(folder)
        DAMAGES[kind](folder / JOURNAL_FILE, draw)
        counts = self.counts.setdefault(kind, DamageCounts())
        counts.damages += 1
        state = self._check_agreement(folder)
        counts.states[state] += 1
        with closing(self._run(output)) as again:
            assert again.folder.resolve() == folder.resolve()
            assert again.complete, "the resumed run is not complete"
            assert read_tables(folder) == self.expected, "the tables differ"
            samples = {task: list(again.samples(task)) for task in again.tasks}
            assert samples == self.samples, "the samples differ"
        asked = len(self.model.asked)
        total = len(self.expected["responses"])
        counts.recovered += total - asked
        counts.asked_again += max(0, asked - (total - stored))
        assert repair_run(folder) is None, "a resumed run is intact"
        shutil.rmtree(self.folder / output)

    def _check_agreement(self, folder: Path) -> str:
        """Return `damaged` or `intact`; the list of runs, the viewer, verify and repair must say the same."""
        copy = folder.with_name("repaired")
        shutil.copytree(folder, copy)
        found = {
            "list": "damaged" if summarise_run(folder).state == "damaged" else "intact",
            "view": _read_everything(folder),
            "verify": _verify(folder),
            "repair": "intact" if repair_run(copy) is None else "damaged",
        }
        shutil.rmtree(copy)
        assert len(set(found.values())) == 1, found
        return found["list"]


def _count_responses(folder: Path) -> int:
    """Return the number of stored responses; a copy of the folder stays unchanged."""
    copy = folder.with_name("counted")
    shutil.copytree(folder, copy)
    with closing(sqlite3.connect(copy / JOURNAL_FILE)) as journal:
        ((count,),) = journal.execute("SELECT count(*) FROM answered")
    shutil.rmtree(copy)
    return int(count)


def _read_everything(folder: Path) -> str:
    run = Run(folder)
    try:
        for task in run.tasks:
            list(run.samples(task))
            list(run.records(task))
        assert run.results is not None
        assert run.spent is not None
    except CorruptStore:
        return "damaged"
    finally:
        run.close()
    return "intact"


def _verify(folder: Path) -> str:
    try:
        changes = api.verify(folder).changes
    except CorruptStore:
        return "damaged"
    assert not changes, changes
    return "intact"
