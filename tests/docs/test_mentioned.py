"""Commands inside sentences, `assay like --this`, are read by the parser, too."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest
from tests.docs.blocks import PAGES, PROJECT
from tests.docs.commands import NotValid, check_command, commands_of, split_commands

GROUPS = {
    f"assay.{kind}" for kind in "aggregations compat filters judges metrics models sandboxes sinks".split()
}
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
INLINE = re.compile(r"`((?:\.venv/bin/)?(?:assay|pip install) [^`]+)`", re.DOTALL)
NAMED = re.compile(r"`(?:with )?(assay(?:\.\w+)+)")


def name_of(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


def mentioned(page: Path) -> list[list[str]]:
    """The commands of a page that stand in its sentences."""
    text = COMMENT.sub("", FENCED.sub("", page.read_text("utf-8")))
    return [words for command in INLINE.findall(text) for words in split_commands(" ".join(command.split()))]


def names(page: Path) -> list[str]:
    """What a page says is in Assay."""
    return NAMED.findall(COMMENT.sub("", FENCED.sub("", page.read_text("utf-8"))))


def resolves(name: str) -> bool:
    """Whether there is a module, or a thing in one, of this name."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.parametrize("page", [page for page in PAGES if mentioned(page)], ids=name_of)
def test_a_command_in_a_sentence_is_one(page: Path) -> None:
    for words in mentioned(page):
        try:
            check_command(words, whole=False)
        except NotValid as error:
            raise AssertionError(f"`{' '.join(words)}`: {error}") from None


@pytest.mark.parametrize("page", [page for page in PAGES if names(page)], ids=name_of)
def test_a_name_in_a_sentence_is_there(page: Path) -> None:
    """`assay.run(…)`, `assay.sandboxes.program_runner.allowed`; the groups of entry points are names, too."""
    for name in names(page):
        assert name in GROUPS or resolves(name), f"there is no `{name}`"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        pytest.param("assay rnu --limit 3", "unknown command", id="a command nobody has"),
        pytest.param("assay run --limti 3", "No such option", id="a flag nobody has"),
        pytest.param("assay check gsm8k --model embedded", "No such option", id="a flag of another command"),
        pytest.param("assay run --model embeded", "no model is called", id="a model nobody has"),
        pytest.param("assay run --model embedded --model_args sede=1", "sede", id="an argument it has not"),
        pytest.param("assay run --limit few", "few", id="a value that is none"),
        pytest.param("assay run --tasks assay/gsm9k", "gsm9k", id="a built-in task that is none"),
        pytest.param("assay run --sink wandd", "wandd", id="a sink nobody has"),
        pytest.param("assay run --judge opnai", "opnai", id="a judge that is no model"),
        pytest.param("pip install 'assay-harness[hff]'", "hff", id="an extra that is none"),
    ],
)
def test_a_wrong_command_is_noticed(command: str, why: str) -> None:
    with pytest.raises(NotValid, match=why):
        check_command(split_commands(command)[0])


def test_commands_are_found_behind_others() -> None:
    assert commands_of("ssh machine assay view --port 8321 # there") == [["assay", "view", "--port", "8321"]]
    assert commands_of("pip install 'assay-harness[hf]'\nassay is a word") == []
