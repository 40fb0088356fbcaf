"""Maps the URLs of the viewer to files of a static site, and rewrites the links of a page to relative ones."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape, unescape
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

__all__ = ["Place", "SiteLinks", "SitePolicy", "rewrite_links", "to_file_name"]

_FILTERS = ("task", "outcome", "low", "high", "category", "q", "sort", "order")
"""Query parameters of the table of documents that the browser evaluates itself."""

_SAFE_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,78}[a-z0-9])?")
_RESERVED_NAMES = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")
_LINK = re.compile(r'\s(href|src|action|data-href)="(/[^"]*)"')
"""An attribute with a URL of the viewer. Text from models and tasks cannot contain one: its quotation marks are escaped."""


class Place(NamedTuple):
    """Where a URL of the viewer is in the site."""

    file: str
    """Path of the file, from the root of the site."""

    source: str
    """URL of the viewer whose response is the content of the file."""

    query: str = ""
    """Query for the script of the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePolicy:
    """Which pages a site contains."""

    runs: frozenset[str]
    """Keys of the runs."""

    compared: tuple[str, ...] = ()
    """Keys of the runs on the page that compares them, the baseline first; none if there is no such page."""

    max_pages: int | None = None
    """Maximum number of pages of each table of documents; None for all."""

    has_media: bool = True
    has_filters: bool = True


def to_file_name(text: str) -> str:
    """Return a file name for any text: the same for equal texts, different for different ones, on every file system.

    >>> to_file_name("gsm8k"), to_file_name("../Etc")
    ('gsm8k', 'etc-de8fd3ae')
    """
    if _SAFE_NAME.fullmatch(text) and not _RESERVED_NAMES.fullmatch(text):
        return text
    words = re.sub(r"[^a-z0-9]+", "-", text.lower())[:60].strip("-")
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{words}-{digest}" if words else digest


class SiteLinks:
    """Finds the file of each URL of the viewer."""

    def __init__(
        self,
        policy: SitePolicy,
        *,
        has_document: Callable[[str, str, int], bool],
        find_media: Callable[[str, str], str],
    ) -> None:
        """`has_document(run, task, number)` and `find_media(run, digest)`: the file extension, or empty."""
        self._policy = policy
        self._has_document = has_document
        self._find_media = find_media

    def find(self, url: str) -> Place | None:
        """Return the place of a URL; None if it is not part of the site."""
        parts = urlsplit(url)
        segments = [unquote(part) for part in parts.path.split("/")[1:]]
        query = parse_qsl(parts.query)
        match segments:
            case [""]:
                return _find_runs_page(dict(query))
            case ["static", _, *rest]:
                return Place(f"assets/{'/'.join(rest)}", url)
            case ["plotly", _]:
                return Place("assets/plotly.min.js", url)
            case ["media", key, digest, *more]:
                return self._find_media_file(url, key, digest, more)
            case ["runs", key, *more] if key in self._policy.runs:
                return self._find_run_page(parts.path, key, more, query)
            case ["compare"]:
                return self._find_comparison(query)
            case ["compare", "document"]:
                return self._find_compared_document(query)
            case ["compare", "plots"]:
                return self._find_comparison_plots(query)
            case ["matrix"] if len(self._policy.runs) > 1:
                return Place("matrix/index.html", "/matrix")
            case ["matrix", "history"] if len(self._policy.runs) > 1:
                given = dict(query)
                words = (given.get(name, "") for name in ("task", "metric", "filter"))
                name = to_file_name(" ".join(words))
                return Place(f"matrix/{name}.html", url)
        return None

    def _find_media_file(self, url: str, key: str, digest: str, more: Sequence[str]) -> Place | None:
        extension = self._find_media(key, digest) if self._policy.has_media else ""
        if not extension or more not in ([], ["thumbnail"]):
            return None
        name = f"{digest}-thumbnail.png" if more else f"{digest}.{extension}"
        return Place(f"media/{name}", url)

    def _find_run_page(
        self, path: str, key: str, more: Sequence[str], query: Sequence[tuple[str, str]]
    ) -> Place | None:
        folder = f"runs/{to_file_name(key)}"
        match more:
            case []:
                return Place(f"{folder}/index.html", path)
            case ["documents"]:
                kept = [(name, value) for name, value in query if name in _FILTERS]
                if len([name for name, _ in query if name != "page"]) != len(kept):
                    return None
                if kept and not self._policy.has_filters:
                    return None
                if kept:
                    return Place(f"{folder}/documents/index.html", path, urlencode(kept))
                page = int(dict(query).get("page", "1"))
                if self._policy.max_pages is not None and page > self._policy.max_pages:
                    return None
                name = "index" if page == 1 else f"page-{page}"
                return Place(f"{folder}/documents/{name}.html", f"{path}?page={page}" if page > 1 else path)
            case ["plots"]:
                return _find_plots(f"{folder}/plots", path, query, ("task", "metric"))
            case ["labels"] if not query:
                return Place(f"{folder}/labels.html", path)
            case ["documents", task, number] if number.isdecimal():
                if not self._has_document(key, task, int(number)):
                    return None
                return Place(f"{folder}/tasks/{to_file_name(task)}/{int(number)}.html", path)
        return None

    def _find_comparison(self, query: Sequence[tuple[str, str]]) -> Place | None:
        compared = self._policy.compared
        runs = [value for name, value in query if name == "run"]
        given = {name: value for name, value in query if name != "run" and value}
        if compared and given.get("baseline") == compared[0]:
            del given["baseline"]
        if not compared or not set(runs) <= set(compared) or set(given) - {"against", "task", "side", "page"}:
            return None
        if len(runs) > 1 and set(runs) != set(compared):
            against = next((key for key in runs if key != compared[0]), "")
            if set(runs) != {compared[0], against}:
                return None
            given["against"] = against
        if len(compared) == 2:
            given.pop("against", None)
        page = int(given.get("page", "1"))
        if self._policy.max_pages is not None and page > self._policy.max_pages:
            return None
        if page == 1:
            given.pop("page", None)
        ordered = {name: given[name] for name in ("against", "task", "side", "page") if name in given}
        source = f"/compare?{urlencode([*(('run', key) for key in compared), *ordered.items()])}"
        return Place(
            f"compare/{to_file_name(' '.join(ordered.values())) if ordered else 'index'}.html", source
        )

    def _find_comparison_plots(self, query: Sequence[tuple[str, str]]) -> Place | None:
        compared = self._policy.compared
        runs = [value for name, value in query if name == "run"]
        given = [(name, value) for name, value in query if name != "run" and value]
        given = [pair for pair in given if not compared or pair != ("baseline", compared[0])]
        if not compared or set(runs) != set(compared):
            return None
        if len(compared) == 2:
            given = [(name, value) for name, value in given if name != "against"]
        path = f"/compare/plots?{urlencode([('run', key) for key in compared])}"
        return _find_plots("compare/plots", path, given, ("against", "task"))

    def _find_compared_document(self, query: Sequence[tuple[str, str]]) -> Place | None:
        runs = [value for name, value in query if name == "run"]
        given = dict(query)
        numbers = [value for name, value in query if name == "document"]
        if not self._policy.compared or not set(runs) <= set(self._policy.compared) or given.get("metric"):
            return None
        kept = [("run", key) for key in runs] + [("task", given.get("task", ""))]
        kept += [("document", number) for number in numbers]
        names = [to_file_name(given.get("task", "")), to_file_name("-".join(numbers))]
        if len(self._policy.compared) > 2:
            names.insert(0, to_file_name(" ".join(runs)))
        return Place(f"compare/documents/{'/'.join(names)}.html", f"/compare/document?{urlencode(kept)}")


def _find_plots(
    folder: str, path: str, query: Sequence[tuple[str, str]], names: Sequence[str]
) -> Place | None:
    """Return the place of a page with plots; `names` are the query parameters that choose what it shows."""
    given = {name: value for name, value in query if value and (name, value) != ("metric", "0")}
    if set(given) - set(names):
        return None
    if not given:
        return Place(f"{folder}/index.html", path)
    ordered = {name: given[name] for name in names if name in given}
    joint = "&" if "?" in path else "?"
    return Place(
        f"{folder}/{to_file_name(' '.join(ordered.values()))}.html", f"{path}{joint}{urlencode(ordered)}"
    )


def _find_runs_page(given: dict[str, str]) -> Place | None:
    if set(given) - {"sort", "order"}:
        return None
    if not given:
        return Place("index.html", "/")
    name = f"runs-by-{to_file_name(given.get('sort', 'started'))}-{to_file_name(given.get('order', 'asc'))}"
    return Place(f"{name}.html", f"/?{urlencode(given)}")


def rewrite_links(page: str, file: str, links: SiteLinks, on_link: Callable[[Place], None]) -> str:
    """Return the page with relative links; a link to a page that is not part of the site becomes text.

    `on_link` is called with the place of each link.
    """
    up = "../" * file.count("/")
    places: dict[str, Place | None] = {}  # a page has the same link many times

    def rewrite(found: re.Match[str]) -> str:
        url, _, fragment = unescape(found[2]).partition("#")
        place = places[url] if url in places else places.setdefault(url, links.find(url))
        if place is None:
            return ""
        on_link(place)
        target = up + quote(place.file) if place.file != file or place.query else file.rpartition("/")[2]
        target += f"?{place.query}" if place.query else ""
        target += f"#{fragment}" if fragment else ""
        return f' {found[1]}="{escape(target)}"'

    return _LINK.sub(rewrite, page)
