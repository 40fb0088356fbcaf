"""Parse the commands and names inside the sentences of the documentation."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest
from tests.docs.blocks import PAGES, PROJECT
from tests.docs.commands import InvalidCommand, check_command, find_commands, split_commands

GROUPS = {
    f"assay.{kind}" for kind in "aggregations compat filters judges metrics models sandboxes sinks".split()
}
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
INLINE = re.compile(r"`((?:\.venv/bin/)?(?:assay|pip install) [^`]+)`", re.DOTALL)
NAMED = re.compile(r"`(?:with )?(assay(?:\.\w+)+)")


def format_path(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


def find_inline_commands(page: Path) -> list[list[str]]:
    """Return the commands in the sentences of a page."""
    text = COMMENT.sub("", FENCED.sub("", page.read_text("utf-8")))
    return [words for command in INLINE.findall(text) for words in split_commands(" ".join(command.split()))]


def find_names(page: Path) -> list[str]:
    """Return the names of Assay in the sentences of a page."""
    return NAMED.findall(COMMENT.sub("", FENCED.sub("", page.read_text("utf-8"))))


def is_importable(name: str) -> bool:
    """Return whether a module or an object in a module has this name."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.parametrize("page", [page for page in PAGES if find_inline_commands(page)], ids=format_path)
def test_every_command_in_prose_is_valid(page: Path) -> None:
    for words in find_inline_commands(page):
        try:
            check_command(words, whole=False)
        except InvalidCommand as error:
            raise AssertionError(f"`{' '.join(words)}`: {error}") from None


@pytest.mark.parametrize("page", [page for page in PAGES if find_names(page)], ids=format_path)
def test_every_name_in_prose_exists(page: Path) -> None:
    """`assay.run(…)`, `assay.sandboxes.program_runner.allowed`; groups of entry points count as names."""
    for name in find_names(page):
        assert name in GROUPS or is_importable(name), f"`{name}` does not exist"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        pytest.param("assay rnu --limit 3", "unknown command", id="unknown command"),
        pytest.param("assay run --limti 3", "No such option", id="unknown flag"),
        pytest.param("assay check gsm8k --model embedded", "No such option", id="flag of another command"),
        pytest.param("assay run --model embeded", "no model is called", id="unknown model"),
        pytest.param("assay run --model embedded --model_args sede=1", "sede", id="unknown model argument"),
        pytest.param("assay run --limit few", "few", id="invalid value"),
        pytest.param("assay run --tasks assay/gsm9k", "gsm9k", id="unknown built-in task"),
        pytest.param("assay run --sink wandd", "wandd", id="unknown sink"),
        pytest.param("assay run --judge opnai", "opnai", id="unknown judge model"),
        pytest.param("pip install 'assay-harness[hff]'", "hff", id="unknown extra"),
        pytest.param("pip install './assay[hff]'", "hff", id="unknown extra of a folder"),
    ],
)
def test_an_invalid_command_is_detected(command: str, message: str) -> None:
    with pytest.raises(InvalidCommand, match=message):
        check_command(split_commands(command)[0])


def test_commands_after_other_commands_are_found() -> None:
    assert find_commands("ssh machine assay view --port 8321 # there") == [
        ["assay", "view", "--port", "8321"]
    ]
    assert find_commands("pip install 'assay-harness[hf]'\nassay is a word") == []
