"""Tests of cgroups, in a folder that looks like a cgroup file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.core.records.programs import ResourceLimits
from assay.sandboxes.cgroups import Cgroup, create_cgroup, find_parent


def write_process(tmp_path: Path, *, cgroup: str, controllers: dict[str, str], kind: str = "cgroup2") -> Path:
    """Write a folder of /proc for a process in `cgroup`, and the cgroups with their controllers."""
    top, process = tmp_path / "cgroups", tmp_path / "process"
    process.mkdir()
    (process / "mountinfo").write_text(f"1 2 0:3 / {top} rw,relatime shared:4 - {kind} {kind} rw\n")
    (process / "cgroup").write_text(f"4:memory:/old\n0::{cgroup}\n")
    for name, enabled in controllers.items():
        folder = top / name.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.subtree_control").write_text(enabled)
    return process


def test_nearest_cgroup_with_both_controllers_is_the_parent(tmp_path: Path) -> None:
    controllers = {"/": "cpu memory pids", "/slice": "memory pids", "/slice/session": ""}
    process = write_process(tmp_path, cgroup="/slice/session", controllers=controllers)
    assert find_parent(process) == tmp_path / "cgroups" / "slice"


@pytest.mark.parametrize(
    ("controllers", "kind"), [({"/": "memory", "/a": ""}, "cgroup2"), ({"/": "memory pids"}, "cgroup")]
)
def test_without_controllers_or_version_2_there_is_none(
    tmp_path: Path, controllers: dict[str, str], kind: str
) -> None:
    process = write_process(tmp_path, cgroup="/a", controllers=controllers, kind=kind)
    assert find_parent(process) is None
    assert create_cgroup(ResourceLimits(), root=process) is None


def test_no_proc_folder_means_no_cgroup(tmp_path: Path) -> None:
    assert find_parent(tmp_path / "missing") is None


def test_limits_are_written_and_events_are_read(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").touch()
    cgroup = Cgroup(tmp_path, ResourceLimits(memory_bytes=1000, file_bytes=24, processes=7))
    assert (tmp_path / "memory.max").read_text() == "1024\n"
    assert (tmp_path / "pids.max").read_text() == "7\n"
    assert not cgroup.ran_out_of_memory
    (tmp_path / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
    assert cgroup.ran_out_of_memory


def test_a_cgroup_that_cannot_be_joined_is_not_used(tmp_path: Path) -> None:
    process = write_process(tmp_path, cgroup="/", controllers={"/": "memory pids"})
    assert create_cgroup(ResourceLimits(), root=process) is None  # a plain folder has no `cgroup.procs`
