"""YAML files whose aliases expand exponentially are refused at once, by every command that reads them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml
from tests.making import write_task

from assay.cli.app import run_command_line
from assay.tasks.files.yaml_aliases import load_yaml


def write_bomb(levels: int, width: int = 9) -> str:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]")
    return "\n".join(lines) + "\n"


def write_merge_bomb(levels: int) -> str:
    lines = ["a0: &a0 {k: 1}"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}], k{level}: 1}}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        write_bomb(9),
        write_bomb(30),
        write_merge_bomb(9),
        "a: &a [*a]",
        "a: &a {b: {c: *a}}",
        "[" * 200_000 + "]" * 200_000,
        "{a: " * 20_000 + "}" * 20_000,
        "- " * 20_000 + "x",
    ],
    ids=[
        "nine levels",
        "thirty levels",
        "merge keys",
        "itself",
        "itself in a mapping",
        "brackets",
        "braces",
        "dashes",
    ],
)
def test_enormous_documents_are_refused_at_once(text: str) -> None:
    begin = time.process_time()
    with pytest.raises(yaml.YAMLError):
        load_yaml(text)
    assert time.process_time() - begin < 1


def test_aliases_and_large_files_are_accepted() -> None:
    assert load_yaml("a: &x [1, 2]\nb: *x\nc: {<<: {d: 1}, e: 2}") == {
        "a": [1, 2], "b": [1, 2], "c": {"d": 1, "e": 2},
    }  # fmt: skip
    assert len(load_yaml("\n".join(f"- {n}" for n in range(120_000)))) == 120_000
    assert load_yaml("") is None


@pytest.mark.parametrize(
    "command",
    [
        ["check", "FILE"],
        ["show", "FILE"],
        ["plan", "FILE"],
        ["run", "--model", "dummy", "--tasks", "FILE"],
        ["ls", "tasks", "--include_path", "FOLDER"],
        ["run", "--config", "CONFIG"],
        ["sweep", "CONFIG"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_every_command_refuses_such_a_file(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = write_task(tmp_path / "tasks", "bombed")
    task.write_text(task.read_text() + write_bomb(12) + "metadata: {x: *a11}\ntag: *a11\n")
    config = tmp_path / "config.yaml"
    config.write_text(write_bomb(12) + "tasks: *a11\nmodel: dummy\n")
    places = {"FILE": str(task), "FOLDER": str(tmp_path / "tasks"), "CONFIG": str(config)}
    begin = time.process_time()
    code = run_command_line([places.get(word, word) for word in command])
    assert time.process_time() - begin < 2
    out, err = capsys.readouterr()
    if command[0] != "ls":
        assert code != 0
        assert "aliases expand to more than" in out + err
    assert len(out + err) < 60_000  # a list of all built-in tasks, or an error
