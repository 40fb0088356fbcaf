"""Writes a static site: renders the viewer's pages through its application and stores them as files.

The pages are those of the server. They leave out what needs one (`SITE`), and their links become relative paths.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode

from starlette.applications import Starlette

from assay.core.errors import AssayError, InvalidOption
from assay.store.index.queries import DocumentQuery
from assay.store.runs.media_files import detect_content_type, find_media_file
from assay.viewer.web.access_control import SITE_POLICY
from assay.viewer.web.app import build_pages, preload
from assay.viewer.web.pages.documents import PAGE_SIZE, Selection
from assay.viewer.web.rendering import SITE, STATIC_FILES, SiteOptions, find_plotly_script, read_static_file
from assay.viewer.web.run_catalog import RunCatalog
from assay.viewer.web.site.links import Place, SiteLinks, SitePolicy, rewrite_links, to_file_name
from assay.viewer.web.site.scripts import to_classic_script

__all__ = ["MARKER_FILE", "SiteSummary", "write_site"]

MARKER_FILE = "assay-site.json"
"""Shows that a folder contains a static site that may be replaced."""

MAX_FILTERED_DOCUMENTS = 50_000
"""Maximum number of documents of a run that the browser filters; it holds all rows of the table in memory."""

_MAX_COMPARED_RUNS = 8
_MAX_CATEGORY_TASKS = 6
_ROWS_PER_FILE = 2000
_INDEX_TIMEOUT_S = 3600.0
_STOP_CHECK_INTERVAL_S = 0.1
_WRITTEN = ("index.html", "runs", "compare", "matrix", "assets", "media", MARKER_FILE)
_NEW_FOLDER = ".assay-site-new"
"""A site is written into this folder inside its own, and moved when it is complete: an error leaves the old site as it is."""

_EXTENSIONS = {"audio/mpeg": "mp3", "image/jpeg": "jpg", "audio/mp4": "m4a"}
_TABLE_ROWS = re.compile(r"<tr data-href=.*?</tr>", re.DOTALL)
_PAGE_COUNT = re.compile(r'id="last-page"')
_SCRIPT = re.compile(r'<script type="module"(?= src=")')
_CATEGORIES = '<div id="categories" data-site-categories></div>'


@dataclass(slots=True)
class SiteSummary:
    """What was written."""

    runs: int = 0
    pages: int = 0
    files: int = 0
    size_bytes: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    """Runs that cannot be indexed, and why."""


def write_site(
    words: Sequence[str],
    folder: Path,
    *,
    has_media: bool = True,
    max_documents: int | None = None,
    on_progress: Callable[[int, int], Any] = lambda done, total: None,
) -> SiteSummary:
    """Write the runs that `words` name into a folder; `on_progress(done, found)` counts pages.

    Raises:
        InvalidOption: The folder has other content, or there is no run.
        AssayError: No run can be indexed, or a page cannot be rendered. An earlier site stays as it was.
    """
    catalog = RunCatalog(words, keep_open=True)
    with closing(catalog):
        keys = list(catalog.folders())
        if not keys:
            raise InvalidOption(
                "there is no run to write", where="--bundle", hint=f"searched {', '.join(catalog.locations)}"
            )
        _check_folder(folder)
        preload()
        is_new = not folder.exists()
        staged = folder / _NEW_FOLDER
        _delete_folder(staged)  # of a killed process
        staged.mkdir(parents=True)
        try:
            summary = _write_pages(_SiteWriter(catalog, staged, has_media, max_documents, on_progress))
            _replace_site(folder, staged)
        finally:
            _delete_folder(staged)
            if is_new and not any(folder.iterdir()):
                folder.rmdir()
        return summary


def _write_pages(writer: _SiteWriter) -> SiteSummary:
    with ThreadPoolExecutor(1) as pool:  # a notebook has an event loop of its own
        try:
            return pool.submit(lambda: asyncio.run(writer.write())).result()
        except BaseException:
            writer.stop()
            raise


def _check_folder(folder: Path) -> None:
    """Refuse a folder with anything but an earlier site."""
    if folder.exists() and not folder.is_dir():
        raise InvalidOption(f"`{folder}` is not a folder", where="--bundle")
    is_used = folder.is_dir() and any(path.name != _NEW_FOLDER for path in folder.iterdir())
    if is_used and not (folder / MARKER_FILE).is_file():
        raise InvalidOption(
            f"the folder `{folder}` is not empty and contains no site of `assay view --bundle`",
            where="--bundle",
            hint="name a new or empty folder",
        )


def _replace_site(folder: Path, staged: Path) -> None:
    """Move a complete site into its folder, in place of an earlier one; other files stay."""
    old = staged / "old"
    old.mkdir()
    for path in sorted(folder.iterdir()):
        is_sorted_list = path.name.startswith("runs-by-") and path.is_file()
        if (path.name in _WRITTEN and path.name != MARKER_FILE) or is_sorted_list:
            path.rename(old / path.name)
    for path in sorted(staged.iterdir()):
        if path != old:
            path.replace(folder / path.name)


def _delete_folder(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)


@dataclass(slots=True)
class _PageQueue:
    """Pages to write, each once."""

    waiting: deque[Place] = field(default_factory=deque)
    known: set[str] = field(default_factory=set)

    def add(self, place: Place) -> None:
        if place.file not in self.known:
            self.known.add(place.file)
            self.waiting.append(place)


class _SiteWriter:
    """Renders pages and the pages that they link to."""

    def __init__(
        self,
        catalog: RunCatalog,
        folder: Path,
        has_media: bool,
        max_documents: int | None,
        on_progress: Callable[[int, int], Any],
    ) -> None:
        self._catalog = catalog
        self._folder = folder
        self._app: Starlette = build_pages(catalog)
        self._on_progress = on_progress
        self._documents: set[tuple[str, str, int]] = set()
        self._made: set[Path] = set()
        self._queue = _PageQueue()
        self._summary = SiteSummary()
        self._stopped = False
        self._max_pages = None if max_documents is None else max(1, -(-max_documents // PAGE_SIZE))
        limit = None if self._max_pages is None else self._max_pages * PAGE_SIZE
        self._options = SiteOptions(has_media=has_media, max_documents=limit)

    def stop(self) -> None:
        """Stop indexing and rendering."""
        self._stopped = True

    def _check_stopped(self) -> None:
        if self._stopped:
            raise AssayError("interrupted")

    async def write(self) -> SiteSummary:
        """Write everything."""
        sizes: dict[str, int] = {}
        for key in list(self._catalog.folders()):
            if (size := await asyncio.to_thread(self._index, key)) is not None:
                sizes[key] = size
        left_out = self._summary.left_out
        if not sizes:
            key, why = next(iter(left_out.items()))
            raise AssayError(f"cannot index the run `{key}`: {why}")
        self._catalog.leave_out(left_out)
        keys = list(sizes)
        self._summary.runs = len(keys)
        (self._folder / MARKER_FILE).write_text(json.dumps({"runs": keys}, indent=2) + "\n", "utf-8")
        limit = self._options.max_documents
        largest = max((size if limit is None else min(size, limit)) for size in sizes.values())
        self._options = replace(self._options, has_filters=largest <= MAX_FILTERED_DOCUMENTS)
        SITE.set(self._options)
        every = await self._list_scorings(keys)
        self._links = SiteLinks(
            SitePolicy(
                runs=frozenset(every),
                compared=await self._order_compared(keys),
                max_pages=self._max_pages,
                has_media=self._options.has_media,
                has_filters=self._options.has_filters,
            ),
            has_document=lambda *document: document in self._documents,
            find_media=self._find_extension,
        )
        for key in every:
            await asyncio.to_thread(self._find_documents, key)
        for key in every:
            await self._write_tables(key)
        self._queue.add(Place("index.html", "/"))
        while self._queue.waiting:
            await self._write(self._queue.waiting.popleft())
        return self._summary

    def _index(self, key: str) -> int | None:
        """Build the index of a run, without which pages have no filters; return the number of documents.

        None if the run cannot be indexed; the summary states why.
        """
        deadline = time.monotonic() + _INDEX_TIMEOUT_S
        while True:
            self._check_stopped()
            state = self._catalog.index(key, wait_s=_STOP_CHECK_INTERVAL_S)
            is_running = state.thread is not None and state.thread.is_alive()  # before the result is read
            if state.index is not None:
                return len(state.index.columns)
            if not is_running or time.monotonic() > deadline:
                self._summary.left_out[key] = state.why or "it takes too long"
                return None

    async def _list_scorings(self, keys: Sequence[str]) -> list[str]:
        """Return the runs and their later scorings, which their pages link to."""
        found = list(keys)
        for key in keys:
            page = await self._render(f"/runs/{quote(key, safe='')}")
            found += [
                f"{key}@{number}" for number in re.findall(r'href="/runs/[^"/?]*%40(\d+)"', page) if number
            ]
        known = dict.fromkeys(keys)
        for key in found[len(keys) :]:
            if key not in known and await asyncio.to_thread(self._index, key) is not None:
                known[key] = None
        return list(known)

    async def _order_compared(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the runs of the comparison in its order; none if there is nothing to compare."""
        if not 2 <= len(keys) <= _MAX_COMPARED_RUNS:
            return ()
        entries = self._app.state.entries
        started = {
            key: entries.get(key, folder).started or 0.0 for key, folder in self._catalog.folders().items()
        }
        states = {key: entries.get(key, folder).state for key, folder in self._catalog.folders().items()}
        chosen = [key for key in keys if states[key] != "damaged"]
        return tuple(sorted(chosen, key=lambda key: started[key])) if len(chosen) > 1 else ()

    # --- tables of documents -----------------------------------------------------------------------

    def _find_documents(self, key: str) -> None:
        """Note the documents in the tables of a run: links to others are not part of the site."""
        self._check_stopped()
        state = self._catalog.index(key)
        assert state.index is not None
        selection = Selection(state.index, DocumentQuery())
        last = len(selection.rows) if self._max_pages is None else self._max_pages * PAGE_SIZE
        for place in range(min(last, len(selection.rows))):
            found = selection.document(place)
            assert found is not None
            self._documents.add((key, *found))

    async def _write_tables(self, key: str) -> None:
        """Write the pages of the table of a run, and its rows for filters in the browser."""
        url = f"/runs/{quote(key, safe='')}/documents"
        rows: list[str] = []
        number, files = 1, 0
        while True:
            place = self._links.find(f"{url}?page={number}" if number > 1 else url)
            if place is None:
                break
            self._queue.known.add(place.file)
            page = await self._write(place)
            rows += _TABLE_ROWS.findall(page)
            has_more = _PAGE_COUNT.search(page) is not None
            number += 1
            if self._options.has_filters and (len(rows) >= _ROWS_PER_FILE or (rows and not has_more)):
                files += 1
                self._write_rows(key, files, rows)
                rows = []
            if not has_more:
                break
        if self._options.has_filters and rows:
            self._write_rows(key, files + 1, rows)

    def _write_rows(self, key: str, number: int, rows: Sequence[str]) -> None:
        text = json.dumps(rows, ensure_ascii=True).replace("<", "\\u003c")
        self._store(
            f"runs/{to_file_name(key)}/documents/rows-{number}.js",
            f"assaySite.addRows({text});\n".encode(),
        )

    # --- pages -------------------------------------------------------------------------------------

    async def _write(self, place: Place) -> str:
        """Write a file; return its text if it is a page."""
        self._check_stopped()
        if place.file.startswith("assets/"):
            self._write_asset(place.file)
            return ""
        if place.file.startswith("media/"):
            await self._write_media(place)
            return ""
        page = await self._render(place.source)
        if _CATEGORIES in page:
            page = page.replace(_CATEGORIES, await self._render_categories(place.source))
        page = _SCRIPT.sub("<script defer", page)
        page = rewrite_links(page, place.file, self._links, self._queue.add)
        head = (
            f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{SITE_POLICY}">\n'
            '<meta name="referrer" content="no-referrer">'
        )
        page = page.replace('<meta charset="utf-8">', head, 1)
        self._store(place.file, page.encode())
        self._summary.pages += 1
        self._on_progress(self._summary.pages, self._summary.pages + len(self._queue.waiting))
        return page

    async def _render(self, url: str) -> str:
        """Return a page of the viewer."""
        for _ in range(24 * 3600 * 10):
            self._check_stopped()
            status, content = await self._request(url)
            if status != 202:
                break
            await asyncio.sleep(0.1)
        if status >= 400:
            text = re.sub(r"<[^>]*>|\s+", " ", content.decode().partition("<main")[2])[:200]
            raise AssayError(f"cannot render `{url}` (HTTP {status}):{text}")
        return content.decode()

    async def _request(self, url: str) -> tuple[int, bytes]:
        """Request a URL from the application, without a server."""
        path, _, query = url.partition("?")
        scope = {
            "type": "http", "method": "GET", "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode(),
            "headers": [(b"host", b"127.0.0.1")], "http_version": "1.1", "scheme": "http", "root_path": "",
            "server": ("127.0.0.1", 80), "client": None,
        }  # fmt: skip
        found: dict[str, Any] = {"status": 500, "body": b""}

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                found["status"] = message["status"]
            elif message["type"] == "http.response.body":
                found["body"] += message.get("body", b"")

        await self._app(scope, receive, send)
        return found["status"], found["body"]

    async def _render_categories(self, url: str) -> str:
        """Return the scores by category of the first tasks that have categories."""
        key = url.rpartition("/")[2]
        with self._catalog.run(unquote(key)) as run:
            tasks = list(run.tasks)
        shown: list[str] = []
        for task in tasks:
            text = await self._render(f"{url}/categories?{urlencode({'task': task})}")
            if "<table" in text:
                shown.append(text)
            if len(shown) == _MAX_CATEGORY_TASKS:
                break
        return "\n".join(shown) or '<p class="note">The documents have no field to group them by.</p>'

    # --- other files -------------------------------------------------------------------------------

    def _write_asset(self, file: str) -> None:
        name = file.removeprefix("assets/")
        if name == "plotly.min.js":
            self._store(file, find_plotly_script().read_bytes())
            return
        content = read_static_file(name)
        if name.endswith(".js"):
            content = to_classic_script(name, lambda one: read_static_file(one).decode()).encode()
        self._store(file, content)
        if name == "reader.js":  # it loads these files when a text needs them
            for other in STATIC_FILES:
                if other.startswith("vendor/"):
                    self._queue.add(Place(f"assets/{other}", ""))

    def _find_extension(self, key: str, digest: str) -> str:
        path = find_media_file(self._catalog.folder(key), digest)
        if path is None:
            return ""
        with path.open("rb") as file:
            kind = detect_content_type(file.read(32))
        return _EXTENSIONS.get(kind, kind.rpartition("/")[2])

    async def _write_media(self, place: Place) -> None:
        _, _, key, digest, *more = place.source.split("/")
        if more:
            status, content = await self._request(place.source)
            self._store(place.file, content if status == 200 else b"")
            return
        path = find_media_file(self._catalog.folder(unquote(key)), digest)
        assert path is not None
        self._store(place.file, path.read_bytes())

    def _store(self, file: str, content: bytes) -> None:
        path = self._folder / file
        if path.parent not in self._made:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._made.add(path.parent)
        path.write_bytes(content)
        self._summary.files += 1
        self._summary.size_bytes += len(content)
