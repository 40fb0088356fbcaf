"""Compare the text index of the viewer with SQLite's FTS5 and its trigram tokenizer.

    python benchmarks/text_search.py [--documents 500000] [--folder DIR]

Both index the texts that `viewer.py` writes and return all matching rows, because filters and counts need them all. FTS5 finds no
words of fewer than three characters, so these scan the texts. Variants: `positions` (detail=full, which finds longer
words in the index) and `documents` (detail=none, a third of the size, which compares the texts of candidates).
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from measurements import Measurement, Report, add_json_option
from numpy.typing import NDArray
from viewer import SUBJECTS, WORDS

from assay.store.index.text_search import TextIndex

BATCH = 2000
REPEAT = 3
QUERIES = {
    "one document": ["number", "{half})"],
    "a phrase of one document": ["(number {half})"],
    "a frequent word": ["question"],
    "a part of many words": ["the"],
    "two frequent words": ["energy", "market"],
    "a frequent phrase": ["the of"],
    "a rare phrase": ["river stone light number"],
    "a letter": ["x"],
    "two letters": ["qu"],
    "no match": ["qqqqq"],
    "a phrase without match": ["river zebra"],
}


def generate_texts(documents: int) -> Iterator[tuple[list[int], list[str]]]:
    """Yield batches of row numbers and texts: a question and its fields, and a response for half of the documents."""
    rng = random.Random(0)
    for start in range(0, documents, BATCH):
        rows = list(range(start, min(start + BATCH, documents)))
        texts = []
        for n in rows:
            text = f"{' '.join(rng.choices(WORDS, k=30))} (number {n})? {SUBJECTS[n % 57]} {n % 5}"
            if n < documents // 2:
                text += f" {' '.join(rng.choices(WORDS, k=45))}. The answer is {n * 7 % 1000}."
            texts.append(text)
        yield rows, texts


class TrigramIndex:
    """An FTS5 table with trigrams."""

    def __init__(self, path: Path, detail: str) -> None:
        self.path, self.detail = path, detail
        self.database = sqlite3.connect(path)
        self.database.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-200000; PRAGMA mmap_size=4000000000;"
            f"CREATE VIRTUAL TABLE texts USING fts5(text, tokenize='trigram case_sensitive 1', detail={detail});"
        )

    def append(self, rows: list[int], texts: list[str]) -> None:
        normalized = (" ".join(text.lower().split()) for text in texts)
        self.database.executemany(
            "INSERT INTO texts (rowid, text) VALUES (?, ?)", zip(rows, normalized, strict=True)
        )

    def close(self) -> None:
        self.database.commit()

    def search(self, words: list[str], rows: int) -> NDArray[np.bool_]:
        """Return which rows contain all words and phrases."""
        conditions, values = [], []
        if self.detail == "full":
            long = [word for word in words if len(word) >= 3]
            if long:
                conditions.append("texts MATCH ?")
                values.append(" AND ".join('"' + word.replace('"', '""') + '"' for word in long))
            short = [word for word in words if len(word) < 3]
        else:  # GLOB uses the trigrams and then compares the text
            for word in (word for word in words if len(word) >= 3):
                conditions.append("text GLOB ?")
                values.append(f"*{word}*")
            short = [word for word in words if len(word) < 3]
        for word in short:
            conditions.append("instr(text, ?)")
            values.append(word)
        found = np.zeros(rows, dtype=bool)
        chosen = self.database.execute(f"SELECT rowid FROM texts WHERE {' AND '.join(conditions)}", values)
        found[np.fromiter((row for (row,) in chosen), np.int64)] = True
        return found


def build(index: Any, documents: int) -> float:
    """Fill an index and return the CPU seconds; the texts are generated outside of the measured time."""
    used = 0.0
    for rows, texts in generate_texts(documents):
        began = time.process_time()
        index.append(rows, texts)
        used += time.process_time() - began
    began = time.process_time()
    index.close()
    return used + time.process_time() - began


def measure_query(search: Callable[[], NDArray[np.bool_]]) -> tuple[float, NDArray[np.bool_]]:
    """Return the median CPU milliseconds and the result."""
    times = []
    for _ in range(REPEAT):
        began = time.process_time()
        found = search()
        times.append(1000 * (time.process_time() - began))
    return statistics.median(times), found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=500_000)
    parser.add_argument("--folder", type=Path, help="where the indexes are written")
    add_json_option(parser)
    options = parser.parse_args()
    report, documents = Report(options.json), options.documents
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        own = TextIndex(folder / "texts.bin")
        peers = {
            "FTS5, positions": TrigramIndex(folder / "full.db", "full"),
            "FTS5, documents": TrigramIndex(folder / "none.db", "none"),
        }
        own_s = build(own, documents)
        own_mb = sum(path.stat().st_size for path in folder.glob("texts.*")) / 2**20
        own_mb += (len(own.encode_vocabulary()) + sum(part.nbytes for part in own.read_positions())) / 2**20
        print(f"{'own':16} built in {own_s:.1f} CPU s, {own_mb:.0f} MB", flush=True)
        for against, index in peers.items():
            seconds, megabytes = build(index, documents), index.path.stat().st_size / 2**20
            print(f"{against:16} built in {seconds:.1f} CPU s, {megabytes:.0f} MB", flush=True)
            report.add(Measurement(what="build", ours=own_s, peer=seconds, against=against, unit="CPU s"))
            report.add(Measurement(what="size", ours=own_mb, peer=megabytes, against=against, unit="MB"))
        for what, words in QUERIES.items():
            words = [word.replace("{half}", str(documents // 2 - 7)) for word in words]
            own_ms, expected = measure_query(lambda: own.search(words, documents))  # noqa: B023
            line = f"{what:26} {expected.sum():7,} rows, own {own_ms:6.0f} ms"
            for against, index in peers.items():
                peer_ms, found = measure_query(lambda: index.search(words, documents))  # noqa: B023
                if not np.array_equal(found, expected):
                    raise SystemExit(
                        f"{what}: {against} finds {found.sum()} rows instead of {expected.sum()}"
                    )
                line += f", {against} {peer_ms:6.0f} ms"
                report.add(
                    Measurement(
                        what=f"search: {what}", ours=own_ms, peer=peer_ms, against=against, unit="CPU ms",
                        details={"rows": int(expected.sum())},
                    )
                )  # fmt: skip
            print(line, flush=True)


if __name__ == "__main__":
    main()
