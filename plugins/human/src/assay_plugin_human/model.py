"""A `Model` that asks a person in the terminal, one question at a time.

The choices of a document are shown together and numbered. The chosen number becomes log-probabilities: the choice gets the
person's confidence (1 - 1e-6 by default), the other choices share the rest equally. Answers are stored immediately, so a run can
be stopped with Ctrl-C and resumed; skipped questions are asked again. Images and audio are written to files whose paths are
shown.
"""

from __future__ import annotations

import asyncio
import getpass
import math
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from assay.core.errors import AssayError
from assay.core.ports import Traits
from assay.core.records.messages import Media
from assay.core.records.requests import Generate, Likelihood, Request
from assay.core.records.responses import Failure, LogProbability, Outcome, Response
from assay.models.tokens import cut_at_stops
from assay_plugin_human.media_files import save_media
from assay_plugin_human.questions import (
    HINT_CHOICE,
    HINT_TEXT,
    format_choices,
    format_heading,
    format_prompt,
    group_requests,
    parse_choice,
    to_log_probabilities,
)
from assay_plugin_human.terminal import ControllingTerminal, Terminal

__all__ = ["HumanModel"]

_SKIP = "skip"
_WINDOW = 4096
"""Large, so that all choices of a document are in one window."""

_NEUTRAL = LogProbability(math.log(0.5))
"""The score of a choice without its question, which is not shown: all such choices get the same."""


class HumanModel:
    """A person who answers in the terminal.

    >>> HumanModel(who="ada").name
    'human-ada'
    """

    def __init__(self, *, who: str = "") -> None:
        """`who`: name of the person, by default the login name. Stored answers are reused for the same person only."""
        self._who = str(who) or _read_login_name()
        self._terminal: Terminal | None = None
        self._folder: Path | None = None

    @property
    def name(self) -> str:
        return f"human-{self._who}"

    @property
    def traits(self) -> Traits:
        """Everything except rolling likelihoods: a person cannot estimate the probability of a whole text."""
        abilities = frozenset({"generate", "likelihood", "chat", "image", "audio", "video"})
        return Traits(abilities=abilities, window=_WINDOW, interactive=True)  # type: ignore[arg-type]

    async def identify(self) -> Mapping[str, str]:
        return {"name": "human", "who": self._who}

    async def open(self) -> None:
        """Open the terminal.

        Raises:
            InvalidOption: The process has no terminal.
        """
        if self._terminal is None:
            self._terminal = self.open_terminal()
            self._folder = Path(tempfile.mkdtemp(prefix="assay-human-"))

    async def close(self) -> None:
        """Stop waiting for an answer; delete the files that were shown."""
        terminal, folder = self._terminal, self._folder
        self._terminal = self._folder = None
        if terminal is not None:
            terminal.close()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Ask in the order of the documents."""
        for requests in group_requests(window):
            for outcome in await asyncio.to_thread(self.answer_question, requests):
                yield outcome

    def open_terminal(self) -> Terminal:
        return ControllingTerminal()

    def answer_question(self, requests: list[Request]) -> list[Outcome]:
        terminal = self._terminal
        if terminal is None:
            raise RuntimeError("answer() was called before open()")
        started = time.monotonic()
        first = requests[0]
        try:
            if isinstance(first, Generate):
                values: Sequence[str | LogProbability] | None = self._ask_text(terminal, first)
            elif isinstance(first, Likelihood):
                values = self._ask_choice(terminal, cast("list[Likelihood]", requests))
            else:
                return _build_failures(
                    requests, "bad request", "a person cannot estimate the probability of a whole text"
                )
        except _IncompleteChoices as error:
            return _build_failures(requests, "bad request", str(error))
        except (
            AssayError,
            OSError,
            ValueError,
            SyntaxError,
        ) as error:  # errors of Pillow and of the media loaders
            return _build_failures(requests, "bad media", str(error))
        if values is None:
            return _build_failures(requests, "skipped", "skipped; a resumed run asks again")
        seconds = (time.monotonic() - started) / len(requests)
        return [
            Response(
                request_id=request.id,
                value=value,
                finish="stop" if isinstance(value, str) else "",
                seconds=seconds,
            )
            for request, value in zip(requests, values, strict=True)
        ]

    def _ask_text(self, terminal: Terminal, request: Generate) -> list[str] | None:
        terminal.show(format_heading(request))
        terminal.show(format_prompt(request.prompt, self._show))
        lines: list[str] = []
        while True:
            line = terminal.ask(HINT_TEXT if not lines else "")
            if line is None or (line.strip() == _SKIP and not lines):
                return None
            lines.append(line.removesuffix("\\"))
            if not line.endswith("\\"):
                return [cut_at_stops("\n".join(lines), request.settings.stop)]

    def _ask_choice(self, terminal: Terminal, requests: list[Likelihood]) -> list[LogProbability] | None:
        asked = [request for request in requests if request.prompt.text or request.prompt.has_media]
        if asked and [request.index for request in asked] != list(range(len(asked))):
            raise _IncompleteChoices(
                "some choices of this document were answered before; use --refresh to ask for all of them"
            )
        found: list[LogProbability] = []
        if asked:
            question, choices = format_choices(asked, self._show)
            terminal.show(format_heading(asked[0]))
            terminal.show(question)
            terminal.show("\n".join(f"  [{number}] {choice}" for number, choice in enumerate(choices, 1)))
            while (line := terminal.ask(HINT_CHOICE)) is not None and line.strip() != _SKIP:
                if (chosen := parse_choice(line, len(choices))) is not None:
                    found = to_log_probabilities(*chosen, len(choices))
                    break
                terminal.show(f"type a number from 1 to {len(choices)}")
            else:
                return None
        given = iter(found)
        return [next(given) if request in asked else _NEUTRAL for request in requests]

    def _show(self, part: Media) -> str:
        if self._folder is None:
            raise RuntimeError("media were shown before open()")
        return save_media(part, self._folder)


class _IncompleteChoices(ValueError):
    """The window contains only some choices of a document."""


def _build_failures(requests: Sequence[Request], kind: str, message: str) -> list[Outcome]:
    return [Failure(request_id=request.id, kind=kind, message=message) for request in requests]


def _read_login_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without such a user
        return "somebody"
