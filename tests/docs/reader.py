"""Run the blocks of a page from top to bottom in an empty folder."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tomllib
import webbrowser
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from tests.docs.blocks import PROJECT, Block, Marker, collect_files
from tests.docs.commands import PROGRAMS, check_command, find_commands, split_commands

from assay.cli.app import run_command_line
from assay.scoring.filters import FILTERS
from assay.scoring.metrics import METRICS
from assay_compat.commands import lm_eval, lmms_eval

__all__ = ["LANGUAGES", "Reader"]

LIMIT_OPTIONS = ["--limit", "3"]
"""Options for runs without a limit of their own."""

BOUNDED = {"--limit", "-L", "--stop_when", "--from", "--locked", "--samples", "--budget", "--subset"}


class Reader:
    """Runs the blocks of a page in order. Every failure names the page and the line."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._patch = monkeypatch
        self._names: dict[str, Any] = {"__name__": "page"}
        self._output = ""

    def read(self, blocks: list[Block]) -> None:
        """Write the files of the page and run its blocks."""
        for name, text in collect_files(blocks).items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            if name.startswith("src/assay/") and path.suffix == ".py":
                self._add_to_package(path)
        for block in blocks:
            self._run_block(block)

    def _add_to_package(self, path: Path) -> None:
        """Make a module of the page part of Assay, as if its file were in the source tree."""
        folder = path.parent.relative_to(self.folder / "src")
        package = import_module(".".join(folder.parts))
        self._patch.setattr(package, "__path__", [*package.__path__, str(path.parent)])
        for registry in (METRICS, FILTERS):
            if registry._builtin_package == package.__name__:
                registry._builtins_loaded = False

    def _run_block(self, block: Block) -> None:
        for marker in block.markers:
            if marker.kind == "before" and marker.value == "python":
                self._exec(marker.text, block.place)
            elif marker.kind == "before":
                ends = tuple(Marker(kind="exits", value=word[-1]) for word in marker.value.split(", ")[1:])
                self._shell(Block(page=block.page, line=block.line, code=marker.text, markers=ends))
        if block.language:
            LANGUAGES[block.language](self, block)

    # --- languages

    def _python(self, block: Block) -> None:
        if block.file or block.marker("not run"):
            compile(block.code, block.place, "exec")
        elif re.search(r"^import lmm?s?_eval", block.code, re.MULTILINE):
            assert self._harness_code(block.code) == 0, f"{block.place}\n{self._output}"
        else:
            self._exec(block.code, block.place)

    def _exec(self, code: str, place: str) -> None:
        with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()):
            exec(compile(code, place, "exec"), self._names)
        self._output = output.getvalue()

    def _shell(self, block: Block) -> None:
        lines = list(enumerate(block.code.replace("\\\n", " ").splitlines(), 1))
        last = max((number for number, line in lines if split_commands(line)), default=0)
        exits = block.marker("exits")
        for number, line in lines:
            for words in split_commands(line):
                place = f"{block.page}:{block.line + number}: {' '.join(words)}"
                if block.is_excluded(number):
                    for shown in [words, *find_commands(line)]:
                        check_command(shown)
                    continue
                code = self._command(words, line, place)
                expected = int(exits.value) if exits and number == last else 0
                assert code == expected, f"{place}\nexited with {code}\n{self._output}"

    def _yaml(self, block: Block) -> None:
        tags: Any = type("Tags", (yaml.SafeLoader,), {})
        tags.add_constructor("!function", lambda loader, node: node.value)
        read = yaml.load(block.code, Loader=tags)
        if block.marker("not run"):
            for words in find_commands(re.sub(r"^\s*- ", "", block.code, flags=re.MULTILINE)):
                check_command(words)
            return
        name = self._yaml_file(block)
        if {"task", "group", "include"} & set(read) or block.marker("changes"):
            assert self._command(["assay", "check", name], "", block.place) == 0, (
                f"{block.place}\n{self._output}"
            )
            assert "no errors, no warnings" in self._output, f"{block.place}\n{self._output}"

    def _yaml_file(self, block: Block) -> str:
        changed = block.marker("changes")
        assert changed or block.file, f"{block.place}: needs <!-- file: NAME -->"
        if changed is None:
            return block.file
        path = self.folder / changed.value
        other = path.with_name(f"changed_{block.line}.yaml")
        other.write_text(f"include: {path.name}\n{block.code}", "utf-8")
        return other.relative_to(self.folder).as_posix()

    def _json(self, block: Block) -> None:
        try:
            json.loads(block.code)
        except ValueError:
            for line in block.code.splitlines():
                json.loads(line)

    def _toml(self, block: Block) -> None:
        for group, names in tomllib.loads(block.code).get("project", {}).get("entry-points", {}).items():
            installed = self.folder / f"page_{block.line}-1.dist-info"
            installed.mkdir()
            (installed / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: page-{block.line}\nVersion: 1\n"
            )
            lines = [f"[{group}]", *(f"{name} = {target}" for name, target in names.items())]
            (installed / "entry_points.txt").write_text("\n".join(lines))

    def _sql(self, block: Block) -> None:
        self._command(["assay", "runs", "path", "latest"], "", block.place)
        journal = next((self.folder / self._output.split()[0]).glob("journal.sqlite"))
        with sqlite3.connect(journal) as connection:
            assert connection.execute(block.code).fetchall(), f"{block.place}: no rows"
        connection.close()

    def _text(self, block: Block) -> None:
        if block.marker("output") is None:
            assert block.marker("not run"), (
                f"{block.place}: needs <!-- output --> or <!-- not run: REASON -->"
            )
            return
        assert matches_output(self._output, block.code), f"{block.place}\nis not the output:\n{self._output}"

    # --- commands

    def _command(self, words: list[str], line: str, place: str) -> int:
        words = [path for word in words for path in _expand(word, quoted=_is_quoted(word, line))]
        while re.match(r"[A-Z_]+=", words[0]):
            self._patch.setenv(*words.pop(0).split("=", 1))
        program, *arguments = words
        check_command(words)
        if program in PROGRAMS:
            return self._view(arguments) if arguments[:1] == ["view"] else self._assay(arguments)
        if program == "export":
            self._patch.setenv(*arguments[0].partition("=")[::2])
        elif program in ("python", "lm-eval", "lm_eval", "lmms-eval"):
            return self._harness_command(program, arguments, place)
        elif program == "make":
            assert f"\n{arguments[0]}:" in (PROJECT / "Makefile").read_text("utf-8"), place
        elif program.startswith("scripts/"):
            assert os.access(PROJECT / program, os.X_OK), f"{place}: there is no such script"
            if arguments and (self.folder / arguments[0]).is_file():
                return self._pytest(arguments[0])
        else:
            known = program.endswith("pip") or words == [".", ".venv/bin/activate"]
            assert known, f"{place}\n`{program}` is not a known program: <!-- not run: REASON -->"
        return 0

    def _pytest(self, path: str) -> int:
        """Run a test file of the page, in this process, where its modules are."""
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:timeout", "-c", os.devnull, "--rootdir", "."]
        with redirect_stdout(io.StringIO()) as output:
            code = pytest.main([*options, "--import-mode=importlib", path])
        self._output = output.getvalue()
        return code

    def _assay(self, arguments: list[str]) -> int:
        if arguments[0] in ("run", "sweep") and not BOUNDED & set(arguments):
            arguments = [*arguments, *LIMIT_OPTIONS]
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as errors:
            code = run_command_line(arguments)
        self._output = out.getvalue() + errors.getvalue()
        return code

    def _harness_command(self, program: str, arguments: list[str], place: str) -> int:
        """Run a command of another harness, translated like in `aliases/`; tests/assay_compat starts the real programs."""
        if program == "python":
            module, program, *arguments = arguments
            assert module == "-m", f"{place}\n<!-- not run: REASON -->"
        translate = {"lm_eval": lm_eval.translate_command, "lmms_eval": lmms_eval.translate_command}[
            program.replace("-", "_")
        ]
        return self._assay(translate(arguments).arguments)

    def _harness_code(self, code: str) -> int:
        """Run Python that imports another harness in a separate process, so that the modules do not stay loaded."""
        paths = [str(PROJECT / "aliases" / "src"), str(PROJECT / "src")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        self._output = done.stdout + done.stderr
        return done.returncode

    def _view(self, arguments: list[str]) -> int:
        """Run `assay view` with a browser that opens the page and then sends Ctrl-C."""
        if "--bundle" in arguments:  # no server
            return self._assay(arguments)
        statuses: list[int] = []

        def visit(address: str) -> None:
            with urlopen(address, timeout=30) as page:
                statuses.append(page.status)
            os.kill(os.getpid(), signal.SIGINT)

        self._patch.setattr(webbrowser, "open", lambda address: Thread(target=visit, args=[address]).start())
        code = self._assay(arguments)
        assert statuses == [200], f"assay {' '.join(arguments)}\n{self._output}"
        return code


def matches_output(output: str, shown: str) -> bool:
    """Return whether the output contains the lines that a page shows, with `…` as a wildcard."""
    pattern = ""
    for line in shown.rstrip().splitlines():
        if line.strip() == "…":
            pattern += r"(?:.*\n)*?"
        else:
            pieces = (re.escape(piece.strip(" ")) for piece in line.rstrip().split("…"))
            pattern += r"[ ]*" + r".*".join(pieces).replace(r"\ ", r"[ ]") + r"[ ]*\n"
    return re.search(pattern, output if output.endswith("\n") else f"{output}\n") is not None


def _is_quoted(word: str, line: str) -> bool:
    return f"'{word}'" in line or f'"{word}"' in line


def _expand(word: str, *, quoted: bool) -> list[str]:
    """Expand `~` and wildcards like the shell."""
    if quoted or word.startswith("-"):
        return [word]
    found = sorted(str(path) for path in Path().glob(word)) if "*" in word else []
    return found or [str(Path(word).expanduser()) if word.startswith("~") else word]


LANGUAGES: dict[str, Callable[[Reader, Block], None]] = {
    "sh": Reader._shell,
    "bash": Reader._shell,
    "python": Reader._python,
    "yaml": Reader._yaml,
    "json": Reader._json,
    "toml": Reader._toml,
    "sql": Reader._sql,
    "text": Reader._text,
}
