"""The search step of MMSearch: an interface, and an index on this machine that implements it.

    engine.search("iPhone 16 release date", 8) -> [Page(title=…, url=…, snippet=…, text=…, screenshot=…), …]

An index is a JSON-lines file, or a folder of them, with one page a line:

    {"title": "…", "url": "…", "text": "…", "snippet": "…", "screenshot": "shots/1.png", "full_screenshot": "shots/1_full.png"}

`title` and `text` are needed. Screenshots are paths relative to the file. The same query finds the same pages in the same
order on every machine.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

LONGEST_SNIPPET = 200
WORDS_PER_PASSAGE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a search finds. Screenshots are paths; empty where there are none."""

    title: str
    url: str
    snippet: str
    text: str
    screenshot: str = ""
    """The top of the page, as one sees it first."""

    full_screenshot: str = ""


class SearchEngine(Protocol):
    """Anything that finds pages."""

    def search(self, query: str, count: int) -> Sequence[Page]:
        """The best pages first, `count` at most; none when nothing fits."""
        ...


def engine_of(settings: Mapping[str, Any]) -> SearchEngine:
    """The engine a task file names; made once for the same settings.

    `search_engine: local` with `search_index: FOLDER`, or `search_engine: package.module:name`, where `name` makes an
    engine from the settings.
    """
    place = os.path.expandvars(str(settings.get("search_index") or ""))
    return _engine(json.dumps({**settings, "search_index": place}, sort_keys=True, default=repr))


@lru_cache(maxsize=4)
def _engine(described: str) -> SearchEngine:
    settings = json.loads(described)
    name, place = settings.get("search_engine", "local"), settings["search_index"]
    if name == "local":
        if not place or place.startswith("$"):
            raise ValueError(
                "mmsearch needs pages to search: set MMSEARCH_INDEX, or `search_index` under "
                "`lmms_eval_specific_kwargs`, to a JSON-lines file of pages or a folder of them"
            )
        return LocalIndex(read_pages(Path(place).expanduser()))
    module, _, maker = str(name).partition(":")
    if not maker:
        raise ValueError(f"`search_engine` is `local` or `package.module:name`, not `{name}`")
    engine: SearchEngine = getattr(importlib.import_module(module), maker)(settings)
    return engine


def read_pages(place: Path) -> list[Page]:
    """The pages of an index, in the order of its files and lines."""
    files = sorted(place.rglob("*.jsonl")) if place.is_dir() else [place]
    if not files or not files[0].is_file():
        raise FileNotFoundError(f"there is no index of pages at {place}")
    return [
        _page(line, file, number)
        for file in files
        for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1)
        if line.strip()
    ]


def _page(line: str, file: Path, number: int) -> Page:
    row = json.loads(line)
    missing = [key for key in ("title", "text") if not isinstance(row.get(key), str)]
    if missing:
        raise ValueError(f"{file}:{number}: a page needs `{missing[0]}`, a text")

    def picture(key: str) -> str:
        return str(file.parent / row[key]) if row.get(key) else ""

    text = row["text"]
    return Page(
        title=row["title"],
        url=row.get("url", ""),
        snippet=row.get("snippet") or " ".join(text[:LONGEST_SNIPPET].split()),
        text=text,
        screenshot=picture("screenshot"),
        full_screenshot=picture("full_screenshot"),
    )


class LocalIndex:
    """Pages in memory, found by the words of their title and text."""

    def __init__(self, pages: Sequence[Page]) -> None:
        self._pages = pages
        self._ranking = Ranking([f"{page.title} {page.title} {page.text}" for page in pages])

    def search(self, query: str, count: int) -> list[Page]:
        """Pages that share a word with the query, the best first."""
        return [self._pages[at] for at, score in self._ranking.ranked(query) if score > 0][:count]


class Ranking:
    """Texts ranked by how well they fit a query: BM25, with rare words counting more and long texts less."""

    SATURATION = 1.2
    LENGTH_WEIGHT = 0.75

    def __init__(self, texts: Sequence[str]) -> None:
        self._counts = [Counter(words(text)) for text in texts]
        self._lengths = [sum(counts.values()) for counts in self._counts]
        self._average = (sum(self._lengths) / len(texts) if texts else 0) or 1.0
        self._holders = Counter(word for counts in self._counts for word in counts)

    def ranked(self, query: str) -> list[tuple[int, float]]:
        """(place, score) of every text, the best first; of equals, the first."""
        wanted = sorted({*words(query)})
        scores = [self._score(wanted, at) for at in range(len(self._counts))]
        return sorted(enumerate(scores), key=lambda one: (-one[1], one[0]))

    def _score(self, wanted: Sequence[str], at: int) -> float:
        counts, total = self._counts[at], len(self._counts)
        share = 1 - self.LENGTH_WEIGHT + self.LENGTH_WEIGHT * self._lengths[at] / self._average
        score = 0.0
        for word in wanted:
            count, holders = counts[word], self._holders[word]
            if count:
                rarity = math.log(1 + (total - holders + 0.5) / (holders + 0.5))
                score += rarity * count * (self.SATURATION + 1) / (count + self.SATURATION * share)
        return score


def words(text: str) -> list[str]:
    """The words of a text, in small letters."""
    return re.findall(r"\w+", text.lower())


def best_passages(query: str, text: str, count: int) -> list[str]:
    """The parts of a long text that fit a query best, the best first."""
    parts = text.split()
    passages = [
        " ".join(parts[at : at + WORDS_PER_PASSAGE]) for at in range(0, len(parts), WORDS_PER_PASSAGE)
    ]
    return [passages[at] for at, _ in Ranking(passages).ranked(query)[:count]]
