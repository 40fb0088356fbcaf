"""Lists runs and finds one by id, id prefix, path, parent folder, or `latest`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from assay.core.errors import AssayError, UnknownName
from assay.store.database.locks import is_locked
from assay.store.database.tables import RETRIED_LIST
from assay.store.journal.journal import JOURNAL_FILE
from assay.store.runs.latest import find_latest
from assay.store.runs.run import Run

__all__ = ["DEFAULT_FOLDER", "RunSummary", "find_run", "find_run_folders", "list_runs", "summarise_run"]

DEFAULT_FOLDER = "assay-runs"
LATEST = "latest"

RunState = Literal["finished", "with failures", "unfinished", "running", "damaged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """Summary of a run for lists."""

    id: str
    folder: Path
    state: RunState
    model: str = ""
    tasks: tuple[str, ...] = ()
    documents: int = 0
    """Number of documents."""

    done: int = 0
    """Number of finished documents."""

    started: float | None = None
    ended: float | None = None
    seconds: float | None = None
    scores: tuple[tuple[str, str, Any], ...] = ()
    """(task or group, metric, value) of the first estimate of every selected task or group."""

    bytes: int = 0
    why: str = ""
    """The error of a damaged run."""


def find_run_folders(folders: Sequence[str | Path] = ()) -> list[Path]:
    """Return the folders of all runs in some folders; by default in `./assay-runs` and the working directory."""
    wanted = [Path(folder).expanduser() for folder in folders] or [Path(DEFAULT_FOLDER), Path()]
    found: dict[Path, None] = {}
    for folder in wanted:
        if (folder / JOURNAL_FILE).is_file() and folder != Path():
            found[folder] = None
        try:
            inside = sorted(folder.iterdir())
        except OSError:
            continue
        found |= dict.fromkeys(child for child in inside if (child / JOURNAL_FILE).is_file())
    return list(found)


def list_runs(folders: Sequence[str | Path] = ()) -> list[RunSummary]:
    """Return summaries of all runs in some folders, the newest first, damaged runs included."""
    return sort_newest_first(summarise_run(folder) for folder in find_run_folders(folders))


def sort_newest_first(summaries: Iterable[RunSummary]) -> list[RunSummary]:
    """Sort by start time, the newest first."""
    return sorted(summaries, key=lambda summary: (-(summary.started or 0.0), summary.id))


def summarise_run(folder: Path) -> RunSummary:
    """Return the summary of the run in a folder, in any state."""
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    run = Run(folder)
    try:
        return _build_summary(run, size)
    except AssayError as error:
        started = (folder / JOURNAL_FILE).stat().st_mtime
        return RunSummary(
            id=folder.name, folder=folder, state="damaged", bytes=size, why=error.what, started=started
        )
    finally:
        run.close()


def _build_summary(run: Run, size: int) -> RunSummary:
    facts = run.facts
    ((done, failed),) = run.journal.query(
        f"SELECT count(*), count(*) FILTER (WHERE outcome IN {RETRIED_LIST}) FROM main.outcomes"
    )
    state: RunState = "unfinished"
    if is_locked(run.folder):
        state = "running"
    elif run.finished:
        state = "with failures" if failed else "finished"
    scores: dict[str, tuple[str, str, Any]] = {}
    if run.finished:
        for estimate in run.estimates:
            if estimate.task in facts.get("top", ()):
                scores.setdefault(estimate.task, (estimate.task, estimate.metric, estimate.value))
    return RunSummary(
        id=run.id,
        folder=run.folder,
        state=state,
        model=run.model,
        tasks=tuple(run.tasks),
        documents=sum(task["documents"] for task in run.tasks.values()),
        done=done,
        started=facts.get("started"),
        ended=facts.get("ended"),
        seconds=facts.get("seconds"),
        scores=tuple(scores.values()),
        bytes=size,
    )


def find_run(name: str | Path, folders: Sequence[str | Path] = (), *, unfinished: bool = False) -> Path:
    """Return the folder of a run, given its id, an id prefix, its path, or a folder that contains one run.

    `latest` is the run that the user finished or displayed last in these folders or, without folders, from the working directory; with
    `unfinished`, the newest unfinished run if there is one.

    Raises:
        UnknownName: There is no such run, or the prefix is ambiguous.
    """
    text = str(name)
    if not text.strip():
        raise UnknownName(
            "the name of the run is empty", hint="specify a run id, the start of one, a path, or `latest`"
        )
    path = Path(text).expanduser()
    if path.name == JOURNAL_FILE and path.is_file():
        return path.parent
    if (path / JOURNAL_FILE).is_file():
        return path
    known = find_run_folders(folders)
    if text == LATEST:
        if not unfinished and (recorded := find_latest(known, here=not folders)) is not None:
            return recorded
        if known:
            return _find_latest_run(known, unfinished=unfinished)
    exact = [folder for folder in known if folder.name == text]
    matches = exact or [folder for folder in known if folder.name.startswith(text)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(folder.name for folder in matches[:4])
        raise UnknownName(
            f"`{text}` is ambiguous, {len(matches)} runs start with it: {names}{', …' if len(matches) > 4 else ''}",
            hint="use a longer prefix of the id, or the path",
        )
    if path.is_dir() or "/" in text:
        return _find_only_run(path)
    raise _build_unknown_run_error(text, [folder.name for folder in known], folders)


def _find_latest_run(known: Sequence[Path], *, unfinished: bool) -> Path:
    summaries = sort_newest_first(summarise_run(folder) for folder in known)
    if unfinished:
        waiting = [one for one in summaries if one.state in ("unfinished", "with failures")]
        return (waiting or summaries)[0].folder
    finished = [one for one in summaries if one.state in ("finished", "with failures")]
    return max(finished, key=lambda one: one.ended or 0.0).folder if finished else summaries[0].folder


def _find_only_run(folder: Path) -> Path:
    """Return the only run in a folder, such as an `--output_path` that was used once."""
    inside = find_run_folders([folder])
    if len(inside) == 1:
        return inside[0]
    if inside:
        names = ", ".join(str(run) for run in inside[:3])
        raise UnknownName(
            f"`{folder}` contains {len(inside)} runs: {names}{', …' if len(inside) > 3 else ''}",
            hint="specify one of them",
        )
    raise UnknownName(f"there is no run in `{folder}`", hint=f"a run folder contains {JOURNAL_FILE}")


def _build_unknown_run_error(text: str, known: list[str], folders: Sequence[str | Path]) -> UnknownName:
    from difflib import get_close_matches

    places = ", ".join(map(str, folders)) or f"./{DEFAULT_FOLDER}"
    if not known:
        return UnknownName(
            f"there are no runs in {places}",
            hint="specify the path of a run, or the folder of the runs with --in DIR",
        )
    look = " ".join(["assay runs", *(f"--in {folder}" for folder in folders)])
    close = get_close_matches(text, known, n=1)
    guess = f"did you mean `{close[0]}`? " if close else ""
    return UnknownName(
        f"no run in {places} is called `{text}`", hint=f"{guess}`{look}` lists all {len(known)}"
    )
