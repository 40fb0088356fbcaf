"""Unusual file systems, names and places: runs work, or are refused with a reason."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.builtin_tasks.fake_hub import picture
from tests.making import make_model, write_task

import assay
from assay.core.errors import DatasetError, OutputError, RunLocked, TaskError
from assay.store.database.locks import RunLock, is_locked
from assay.store.journal.journal import JOURNAL_FILE, Journal


def run(task: Path, output: Path, model: Any = None, **options: Any) -> assay.Run:
    return assay.run(
        model=model or make_model(), tasks=[str(task)], output_path=str(output), no_cache=True, **options
    )


# --- file systems --------------------------------------------------------------------------------------


@pytest.fixture
def no_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.usefixtures("no_flock")
def test_a_run_works_without_file_locks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(run(write_task(tmp_path), tmp_path / "out")) as finished:
        assert finished.complete
        assert not is_locked(finished.folder)
    assert "has no file locks" in caplog.text


@pytest.mark.usefixtures("no_flock")
def test_without_file_locks_a_running_process_is_noticed(tmp_path: Path) -> None:
    note = {"pid": os.getppid(), "host": socket.gethostname(), "since": 1.0}
    (tmp_path / "lock").write_text(json.dumps(note))
    assert is_locked(tmp_path)
    with pytest.raises(RunLocked, match=f"process {os.getppid()}"):
        RunLock(tmp_path).acquire()


def test_an_output_folder_that_is_deleted_stops_the_run(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} + 1?", "answer": "1"} for n in range(400)]
    model = make_model(name="deleting", window=4)
    answer = model.answer

    async def delete_and_answer(window: Any) -> Any:
        import asyncio

        await asyncio.sleep(0.001)
        if len(model.asked) == 40:
            shutil.rmtree(tmp_path / "out")
        async for outcome in answer(window):
            yield outcome

    model.answer = delete_and_answer  # type: ignore[method-assign]
    with pytest.raises(OutputError, match="deleted or replaced"):
        run(write_task(tmp_path, rows=rows), tmp_path / "out", model)
    assert len(model.asked) < 400


@pytest.mark.parametrize("has_log", [False, True])
def test_a_finished_run_in_a_read_only_folder_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_log: bool
) -> None:
    with closing(run(write_task(tmp_path), tmp_path / "out")) as finished:
        folder = finished.folder
    if has_log:  # a kill left the log, and the copy has no lock file
        copy = tmp_path / "copy" / folder.name
        with closing(Journal.open_for_writing(folder)) as journal:
            journal.set_facts({"note": "in the log"}).result()
            shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*-shm"))
        folder = copy
        assert (folder / f"{JOURNAL_FILE}-wal").stat().st_size
    usual = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and usual(path, mode))
    before = sorted(file.name for file in folder.iterdir())
    with closing(assay.open_run(folder)) as shown:
        assert shown.results["sums"]["exact_match,none"] == 1.0
        assert len(list(shown.samples("sums"))) == 6
    assert sorted(file.name for file in folder.iterdir()) == before, "nothing is written"


# --- names ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["\x1b[31mred", "a\0b", "two\nlines", "bell\x07"])
def test_a_name_with_control_characters_is_refused(tmp_path: Path, name: str) -> None:
    path = write_task(tmp_path, "plain")
    path.write_text(path.read_text().replace("task: plain", f"task: {json.dumps(name)}", 1))
    with pytest.raises(TaskError, match="control characters"):
        run(path, tmp_path / "out")


@pytest.mark.parametrize("name", ["x" * 300, "é" * 300])
def test_a_long_name_has_valid_file_names(tmp_path: Path, name: str) -> None:
    path = write_task(tmp_path, "plain")
    path.write_text(path.read_text().replace("task: plain", f"task: {json.dumps(name)}", 1))
    with closing(run(path, tmp_path / "out", log_samples=True)) as finished:
        assert finished.results[name]["exact_match,none"] == 1.0
    assert len(list((tmp_path / "out").rglob("samples_*.jsonl"))) == 1


# --- data outside the task -----------------------------------------------------------------------------


@pytest.fixture
def shared_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A task whose data file is elsewhere on the machine."""
    path = write_task(tmp_path / "shared", "plain")
    (tmp_path / "private").mkdir()
    (tmp_path / "shared" / "plain.jsonl").rename(tmp_path / "private" / "plain.jsonl")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return path


def point_at(task: Path, data: str) -> Path:
    task.write_text(task.read_text().replace("test: plain.jsonl", f"test: {data}"))
    return task


@pytest.mark.parametrize("how", ["absolute", "relative", "link", "pattern"])
def test_data_outside_needs_an_option(shared_task: Path, how: str) -> None:
    private = shared_task.parent.parent / "private"
    names = {
        "absolute": str(private / "plain.jsonl"),
        "relative": "../private/plain.jsonl",
        "link": "link.jsonl",
        "pattern": f"{private}/*.jsonl",
    }
    if how == "link":
        (shared_task.parent / "link.jsonl").symlink_to(private / "plain.jsonl")
    point_at(shared_task, names[how])
    with pytest.raises(DatasetError, match="outside the folder of the task") as caught:
        run(shared_task, Path("out"))
    assert "--allow_data_outside" in caught.value.hint
    if how != "pattern":  # needs the `datasets` library
        with closing(run(shared_task, Path("out"), allow_data_outside=True)) as finished:
            assert finished.complete


@pytest.mark.parametrize("how", ["path", "url", "mapping", "link", "text as bytes", "key of the kind"])
@pytest.mark.parametrize("key", ["doc_to_image", "doc_to_visual"])
def test_media_outside_need_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, how: str
) -> None:
    model = make_model(lambda request: "blue")
    private, link = tmp_path / "private.png", tmp_path / "shared" / "link.png"
    picture().save(private)
    link.parent.mkdir()
    link.symlink_to(private)
    named = {
        "path": str(private),
        "url": private.as_uri(),
        "mapping": {"path": str(private)},
        "link": str(link),
        "text as bytes": {"bytes": str(private)},
        "key of the kind": {"image" if key == "doc_to_image" else "url": str(private)},
    }
    rows = [{"question": "Which colour?", "picture": named[how], "answer": "blue"}]
    task = write_task(tmp_path / "shared", "seen", rows, **{key: "picture"})
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with pytest.raises(DatasetError, match=r"the media file .* is outside the folder of the task"):
        run(task, Path("out"), model)
    with closing(run(task, Path("out"), model, allow_data_outside=True)) as finished:
        assert finished.complete
    link.unlink()
    private.rename(tmp_path / "shared" / "own.png")
    task = write_task(
        tmp_path / "shared",
        "own",
        [{**rows[0], "picture": str(link.with_name("own.png"))}],
        **{key: "picture"},
    )
    with closing(run(task, Path("out"), model)) as finished:
        assert finished.complete


@pytest.mark.parametrize("where", ["data_root", "working directory"])
def test_data_under_a_root_needs_no_option(
    shared_task: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    private = shared_task.parent.parent / "private"
    point_at(shared_task, str(private / "plain.jsonl"))
    options = {"data_root": str(private)} if where == "data_root" else {}
    if where == "working directory":
        monkeypatch.chdir(private)
    with closing(run(shared_task, Path("out"), **options)) as finished:
        assert finished.complete
