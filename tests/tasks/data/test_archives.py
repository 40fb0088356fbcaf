"""Tests of media that datasets keep in archives."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import DatasetError
from assay.core.records.specs import TaskSpec
from assay.tasks.data.archives import find_media_folder, prepare_media


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    folder = tmp_path / "hub" / "org" / "clips"
    folder.mkdir(parents=True)
    return folder


def make_spec(**settings: Any) -> TaskSpec:
    settings = {"video": True, "cache_dir": "clips", **settings}
    return TaskSpec(name="a", path="a.yaml", dataset_path="org/clips", dataset_kwargs=settings)


def write_zip(path: Path, **files: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/") + ".mp4", content)


def tar_bytes(**files: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{name}.mp4")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def found(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_zip_is_unpacked_where_the_task_looks(home: Path, snapshot: Path) -> None:
    write_zip(snapshot / "one.zip", videos__a=b"A")
    (snapshot / "deep").mkdir()
    write_zip(snapshot / "deep" / "two.zip", b=b"B")
    prepare_media(make_spec(), snapshot)
    assert found(home / "clips") == {"videos/a.mp4": b"A", "b.mp4": b"B"}
    assert [path.name for path in home.iterdir()] == ["clips"]


def test_a_tar_cut_into_parts_is_put_together(home: Path, snapshot: Path) -> None:
    whole = tar_bytes(a=b"A" * 700, b=b"B" * 900)
    for at in range(3):
        (snapshot / f"videos.tar.part{at}").write_bytes(
            whole[at * 1200 : (at + 1) * 1200 if at < 2 else None]
        )
    prepare_media(make_spec(), snapshot)
    assert found(home / "clips") == {"a.mp4": b"A" * 700, "b.mp4": b"B" * 900}


def test_a_folder_that_is_there_is_left_alone(home: Path, snapshot: Path) -> None:
    write_zip(snapshot / "one.zip", a=b"A")
    (home / "clips").mkdir(parents=True)
    prepare_media(make_spec(), snapshot)
    assert found(home / "clips") == {}
    prepare_media(make_spec(force_unzip=True), snapshot)
    assert found(home / "clips") == {"a.mp4": b"A"}


def test_loose_files_are_linked(home: Path, snapshot: Path) -> None:
    (snapshot / "a.mp4").write_bytes(b"A")
    prepare_media(make_spec(), snapshot)
    assert (home / "clips").is_symlink()
    assert found(home / "clips") == {"a.mp4": b"A"}


def test_a_damaged_archive_leaves_nothing_half_done(home: Path, snapshot: Path) -> None:
    write_zip(snapshot / "a.zip", a=b"A")
    (snapshot / "b.zip").write_bytes(b"PK no zip at all")
    with pytest.raises(DatasetError, match="cannot unpack the media"):
        prepare_media(make_spec(), snapshot)
    assert list(home.iterdir()) == []


def test_no_archive_writes_outside_of_its_folder(home: Path, snapshot: Path, tmp_path: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        entry = tarfile.TarInfo("../../escaped.mp4")
        entry.size = 1
        tar.addfile(entry, io.BytesIO(b"x"))
    (snapshot / "bad.tar").write_bytes(stream.getvalue())
    with pytest.raises(DatasetError, match="cannot unpack the media"):
        prepare_media(make_spec(), snapshot)
    assert not list(tmp_path.rglob("escaped.mp4"))


def test_a_task_without_video_needs_no_folder(home: Path, snapshot: Path) -> None:
    write_zip(snapshot / "one.zip", a=b"A")
    prepare_media(make_spec(video=False), snapshot)
    assert not home.exists()


@pytest.mark.parametrize(("name", "expected"), [("x", "home/x"), ("$HOLD/x", "hold/x"), ("/abs/x", "/abs/x")])
def test_where_media_lie(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, expected: str
) -> None:
    monkeypatch.setenv("HOLD", str(tmp_path / "hold"))
    assert find_media_folder(name) == tmp_path / expected


def test_media_that_cannot_be_fetched_are_said_with_a_hint(home: Path) -> None:
    pytest.importorskip("huggingface_hub")
    with pytest.raises(DatasetError, match="cannot download the media") as raised:
        prepare_media(make_spec(), None)
    assert "--data_root" in (raised.value.hint or "")
