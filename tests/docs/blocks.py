"""Read the code blocks of the documentation and the comments that control how the tests run them.

The language of a block decides how it runs. HTML comments before the block, which readers do not see, give instructions:

    <!-- not run: REASON -->            the block cannot run here; its commands are still parsed
    <!-- not run, line 2: REASON -->    only this line (or `lines 2-3`) cannot run
    <!-- exits 3 -->                    the exit code of the last command of the block, if it is not 0
    <!-- file: NAME -->                 the block is the content of this file; without a block, the rest of the comment is
    <!-- changes: NAME -->              keys that replace those of a YAML file on the page
    <!-- output -->                     the output of the last command; `…` matches anything on a line,
                                        and any lines if it is alone on a line
    <!-- before: sh … -->               commands (or `python`) that prepare the input of the block
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["PAGES", "PROJECT", "Block", "Marker", "read_page", "collect_files"]

PROJECT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "aliases/*.md", "examples/**/*.md", "tools/**/*.md", "benchmarks/*.md",
                    "src/assay/builtin_tasks/**/*.md")
    for path in PROJECT.glob(pattern)
)  # fmt: skip
"""Every page of the documentation."""

KINDS = ("not run", "exits", "file", "changes", "output", "before")
_FENCE = re.compile(r"(?P<indent> *)(?P<fence>```+)(?P<language>[\w-]*)\s*$")
_MARKER = re.compile(
    r"<!--\s*(?P<kind>not run|exits|file|changes|output|before)\b(?P<rest>.*?)-->", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A comment with an instruction for the tests."""

    kind: str
    value: str = ""
    """The text after the colon: a reason, a file name, a language."""

    text: str = ""
    """The lines after the first."""

    lines: frozenset[int] = frozenset()
    """The lines of the block that it applies to. Empty: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block and the comments before it. `language` is empty for a comment without a block."""

    page: str
    line: int
    language: str = ""
    code: str = ""
    markers: tuple[Marker, ...] = field(default=())

    @property
    def place(self) -> str:
        """Return page and line, in the format of editors."""
        return f"{self.page}:{self.line}"

    def marker(self, kind: str) -> Marker | None:
        """Return the comment of this kind."""
        return next((marker for marker in self.markers if marker.kind == kind), None)

    @property
    def file(self) -> str:
        """Return the name of its file, or an empty string."""
        names = [marker.value for marker in self.markers if marker.kind == "file" and not marker.text]
        return names[0] if names else ""

    def is_excluded(self, number: int) -> bool:
        """Return whether a line, counted from 1, cannot run here."""
        markers = [marker for marker in self.markers if marker.kind == "not run"]
        return any(not marker.lines or number in marker.lines for marker in markers)


def read_page(path: Path) -> list[Block]:
    """Return the blocks of a page in order."""
    page = path.relative_to(PROJECT).as_posix()
    lines = path.read_text("utf-8").splitlines()
    blocks: list[Block] = []
    markers: list[Marker] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        start = number + 1
        if found := _FENCE.match(line):
            end = next(n for n in range(number + 1, len(lines)) if lines[n].strip() == found["fence"])
            inside = (text.removeprefix(found["indent"]) for text in lines[number + 1 : end])
            code = "".join(f"{text}\n" for text in inside)
            blocks.append(
                Block(page=page, line=start, language=found["language"], code=code, markers=tuple(markers))
            )
            markers, number = [], end
        elif line.lstrip().startswith("<!--"):
            end = next(n for n in range(number, len(lines)) if "-->" in lines[n])
            markers += _parse_markers("\n".join(lines[number : end + 1]), f"{page}:{start}")
            number = end
        elif line.strip() and markers:  # prose: the comments before it have no block
            blocks.append(Block(page=page, line=start, markers=tuple(markers)))
            markers = []
        number += 1
    return blocks


def _parse_markers(comment: str, place: str) -> list[Marker]:
    """Parse a comment; an ordinary comment has no markers."""
    found = _MARKER.fullmatch(comment.strip())
    if found is None:
        near = re.match(r"<!--\s*(\w+)", comment.strip())
        assert near is None or near[1] not in {kind.split()[0] for kind in KINDS}, (
            f"{place}: unreadable marker"
        )
        return []
    head, _, text = found["rest"].strip(" ").partition("\n")
    scope, _, value = head.partition(":") if ":" in head else ("", "", head)
    numbers = re.findall(r"\d+", scope)
    lines = frozenset(range(int(numbers[0]), int(numbers[-1]) + 1)) if numbers else frozenset()
    return [Marker(kind=found["kind"], value=value.strip(), text=textwrap.dedent(text), lines=lines)]


def collect_files(blocks: list[Block]) -> dict[str, str]:
    """Return the files of a page: name -> content."""
    files: dict[str, str] = {}
    for block in blocks:
        for marker in block.markers:
            if marker.kind == "file":
                files[marker.value] = marker.text or block.code
    return files
