"""The code blocks of the documentation, and what the Markdown says about running them.

A block is run by its language. HTML comments before it, which no reader sees, say what else there is to know:

    <!-- not run: REASON -->            it cannot be run here; what it names is still checked against the parser
    <!-- not run, line 2: REASON -->    only that line (or `lines 2-3`) cannot be run
    <!-- exits 3 -->                    how the last command of the block ends, where that is not 0
    <!-- file: NAME -->                 the block is this file; without a block the rest of the comment is the file
    <!-- changes: NAME -->              keys to put in place of those of a YAML file the page has shown
    <!-- output -->                     what the last command before it printed; `…` stands for anything on a line,
                                        alone on a line for any lines
    <!-- before: sh … -->               commands (or `python`) that make what the block takes for granted
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["PAGES", "PROJECT", "Block", "Marker", "read_page", "written"]

PROJECT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "aliases/*.md", "examples/**/*.md", "tools/**/*.md", "benchmarks/*.md",
                    "src/assay/builtin_tasks/**/*.md")
    for path in PROJECT.glob(pattern)
)  # fmt: skip
"""Every page people read."""

KINDS = ("not run", "exits", "file", "changes", "output", "before")
_FENCE = re.compile(r"(?P<indent> *)(?P<fence>```+)(?P<language>[\w-]*)\s*$")
_MARKER = re.compile(
    r"<!--\s*(?P<kind>not run|exits|file|changes|output|before)\b(?P<rest>.*?)-->", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """One comment that is meant for the tests."""

    kind: str
    value: str = ""
    """What stands behind the colon: a reason, a file name, a language."""

    text: str = ""
    """The lines below that."""

    lines: frozenset[int] = frozenset()
    """The lines of the block it speaks of; none means all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block and the comments before it. `language` is empty for a comment that stands alone."""

    page: str
    line: int
    language: str = ""
    code: str = ""
    markers: tuple[Marker, ...] = field(default=())

    @property
    def place(self) -> str:
        """As editors open it."""
        return f"{self.page}:{self.line}"

    def marker(self, kind: str) -> Marker | None:
        """Its comment of this kind."""
        return next((marker for marker in self.markers if marker.kind == kind), None)

    @property
    def file(self) -> str:
        """The name of the file it is; empty if it is none."""
        names = [mark.value for mark in self.markers if mark.kind == "file" and not mark.text]
        return names[0] if names else ""

    def unrun(self, number: int) -> bool:
        """Whether a line, counted from 1, cannot be run here."""
        marks = [marker for marker in self.markers if marker.kind == "not run"]
        return any(not mark.lines or number in mark.lines for mark in marks)


def read_page(path: Path) -> list[Block]:
    """The blocks of a page in their order."""
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
            markers += _markers("\n".join(lines[number : end + 1]), f"{page}:{start}")
            number = end
        elif line.strip() and markers:  # prose: the comments before it stand for themselves
            blocks.append(Block(page=page, line=start, markers=tuple(markers)))
            markers = []
        number += 1
    return blocks


def _markers(comment: str, place: str) -> list[Marker]:
    """What a comment says to the tests; nothing if it is an ordinary one."""
    found = _MARKER.fullmatch(comment.strip())
    if found is None:
        near = re.match(r"<!--\s*(\w+)", comment.strip())
        assert near is None or near[1] not in {kind.split()[0] for kind in KINDS}, (
            f"{place}: unreadable marker"
        )
        return []
    head, _, text = found["rest"].strip(" ").partition("\n")
    said, _, value = head.partition(":") if ":" in head else ("", "", head)
    numbers = re.findall(r"\d+", said)
    lines = frozenset(range(int(numbers[0]), int(numbers[-1]) + 1)) if numbers else frozenset()
    return [Marker(kind=found["kind"], value=value.strip(), text=textwrap.dedent(text), lines=lines)]


def written(blocks: list[Block]) -> dict[str, str]:
    """The files a page shows or takes for granted: name -> contents."""
    files: dict[str, str] = {}
    for block in blocks:
        for marker in block.markers:
            if marker.kind == "file":
                files[marker.value] = marker.text or block.code
    return files
