"""Tests of the launch specification."""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path

import pytest

from assay.core.records.programs import Program, ResourceLimits
from assay.sandboxes.launch_spec import (
    Descriptors,
    build_launch_spec,
    interpreter_folders,
    is_readable_by_all,
    launcher_arguments,
    link_targets,
    pick_unused_user,
    readable_folders,
)
from assay.sandboxes.seccomp import build_filters


def test_launch_spec_has_limits_and_no_environment_variables_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    program = Program(source="pass", limits=ResourceLimits(processes=5))
    spec = json.loads(
        build_launch_spec(
            program, mode="limits", folder="/box", descriptors=Descriptors(3, 4), shared_tasks=10
        )
    )
    assert "secret" not in json.dumps(spec)
    assert spec["command"] == [sys.executable, "-I", "-X", "utf8", "program.py"]
    assert (spec["bounds"]["processes"], spec["max_processes"]) == (15, 5)


def test_interpreter_is_readable_and_home_folder_is_not() -> None:
    folders = [Path(path) for path in readable_folders()]
    assert any(Path(os.__file__).is_relative_to(folder) for folder in folders)
    assert not any(Path.home().is_relative_to(folder) for folder in folders)


def test_files_and_standard_input_are_base64() -> None:
    program = Program(source="pass", stdin=b"\x00in", files={"data/a.bin": b"\xff"})
    spec = json.loads(
        build_launch_spec(program, mode="inside", folder="/box", descriptors=Descriptors(-1, -1))
    )
    assert base64.b64decode(spec["stdin"]) == b"\x00in"
    assert base64.b64decode(spec["files"]["data/a.bin"]) == b"\xff"
    assert (spec["status"], spec["control"]) == (-1, -1)


@pytest.mark.parametrize(
    ("mode", "signals", "network"),
    [("limits", False, False), ("limits", True, False), ("namespaces", True, True)],
)
def test_network_and_signals_depend_on_the_mode(mode: str, signals: bool, network: bool) -> None:
    spec = json.loads(
        build_launch_spec(
            Program(source="pass"), mode=mode, folder="/box", descriptors=Descriptors(3, 4), signals=signals
        )
    )
    expected = build_filters(network=network, signals=signals)
    assert {machine: base64.b64decode(code) for machine, code in spec["seccomp"].items()} == expected


def test_interpreter_placeholder_is_replaced() -> None:
    program = Program(source="pass")
    spec = json.loads(
        build_launch_spec(
            program, mode="inside", folder="/box", descriptors=Descriptors(3, 4), interpreter="/opt/python"
        )
    )
    assert spec["command"][0] == "/opt/python"


def test_launcher_source_compiles_as_one_program() -> None:
    *options, bootstrap, isolation, launcher = launcher_arguments()
    assert options == ["-I", "-S", "-c"]
    names: dict[str, object] = {"__name__": "not_main"}
    for source in (isolation, launcher):
        exec(compile(source, "launcher", "exec"), names)
    assert callable(names["main"]) and callable(names["install_seccomp_filter"])
    assert "exec(compile" in bootstrap


def test_only_root_gets_an_unused_user() -> None:
    user = pick_unused_user()
    assert (user is not None) == (os.geteuid() == 0)
    assert user is None or user >= 1_879_048_192


def test_folders_of_another_interpreter() -> None:
    assert interpreter_folders("/opt/python/bin/python3")[-1] == "/opt/python"


def test_a_closed_folder_makes_the_interpreter_unreadable(tmp_path: Path) -> None:
    interpreter = tmp_path / "closed" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.touch(mode=0o755)
    (tmp_path / "closed").chmod(0o700)
    assert not is_readable_by_all(str(interpreter))


def test_links_of_the_root_folder_are_not_readable_folders() -> None:
    assert not set(link_targets()) & set(readable_folders())
