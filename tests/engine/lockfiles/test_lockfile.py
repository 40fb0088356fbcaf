"""The form of lockfiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import InvalidOption, OutputError
from assay.engine.lockfiles.lockfile import FORMAT, Lockfile, parse_lock, read_lock, write_lock

TEXTS = {
    "lines": "Question: 1 + 1?\nAnswer:",
    "trailing spaces": "a \nb",
    "control characters": "a\x1b[31m\nb",
    "leading break": "\n\nQuestion",
    "looks like a number": "1e3",
    "unicode": "Grüße 你好 🦔\nzwei",
    "colon": "a: b\n- c",
}


def make_content(**dataset: Any) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "options": {"tasks": ["sums"]},
        "model": {"name": "dummy"},
        "judges": {},
        "packages": {},
        "tasks": {"sums": {"dataset": {"path": "org/sums", **dataset}, "prompts": {"first": TEXTS}}},
    }


def test_any_text_survives_the_file(tmp_path: Path) -> None:
    lock = Lockfile(content=make_content(), path=tmp_path / "below" / "eval.lock")
    write_lock(lock)
    again = read_lock(lock.path)
    assert again.content == lock.content and again.digest == lock.digest
    assert again.text == lock.path.read_text("utf-8") == lock.text
    assert "        lines: |-\n          Question: 1 + 1?\n          Answer:\n" in lock.text


def test_mirrors_do_not_change_the_digest(tmp_path: Path) -> None:
    plain, mirrored, moved = (
        Lockfile(content=make_content(**more), path=tmp_path / "a.lock")
        for more in ({}, {"mirrors": ["other/sums"]}, {"digest": "abc"})
    )
    assert plain.digest == mirrored.digest != moved.digest


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "not a lockfile"),
        ({"tasks": {}}, "not a lockfile"),
        ({"format": FORMAT + 1}, "newer version of Assay"),
        ({"format": FORMAT, "options": {}}, "no section `model`"),
        (make_content(mirrors=["/etc"]), "`/etc` is not the id of a dataset"),
        (make_content(mirrors=["../secret"]), "`../secret` is not the id of a dataset"),
        (make_content(mirrors="~/x"), "`~/x` is not the id of a dataset"),
        ({**make_content(), "tasks": {"sums": []}}, "`tasks.sums` is not a mapping"),
        ({**make_content(), "judges": {"a": 3}}, "`judges.a` is not a mapping"),
        ({**make_content(), "tasks": {3: {}}}, "no section `tasks`"),
        ({**make_content(), "tasks": {"sums": {"files": []}}}, "`tasks.sums.files` is not a mapping"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_of_another_form_is_an_error(tmp_path: Path, content: Any, message: str) -> None:
    import yaml

    path = tmp_path / "eval.lock"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(InvalidOption, match=message):
        read_lock(path)
    with pytest.raises(InvalidOption, match=message):
        parse_lock(path.read_text(), path)


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write the lockfile"):
        write_lock(Lockfile(content=make_content(), path=tmp_path / "file" / "eval.lock"))
