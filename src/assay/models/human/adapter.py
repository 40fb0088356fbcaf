"""A person behind the `Model` port: asked in the terminal, one question at a time.

The choices of a document are shown together and numbered. A number becomes log-probabilities: all but a millionth for the
choice, or as much as the person says to be sure of; the others share the rest alike. Every answer is kept when it is given,
so a run can be left with Ctrl-C and continued; what was skipped is asked again then. Pictures and sounds are written to
files whose paths are shown.
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
from assay.core.messages import Media
from assay.core.ports import Traits
from assay.core.requests import Generate, Likelihood, Request
from assay.core.responses import Failure, LogProbability, Outcome, Response
from assay.models.human.questions import (
    HINT_CHOICE,
    HINT_TEXT,
    choices_of,
    grouped,
    heading,
    likelihoods,
    read_choice,
    shown,
)
from assay.models.human.showing import save_medium
from assay.models.human.terminal import Terminal, Tty
from assay.models.tokens import cut_at_stops

__all__ = ["HumanModel"]

_SKIP = "skip"
_WINDOW = 4096
"""Large, so that the choices of a document come together."""

_NO_OPINION = LogProbability(math.log(0.5))
"""A choice without its question: nobody has an opinion, and all get the same."""


class HumanModel:
    """Whoever sits at the terminal.

    >>> HumanModel(who="ada").name
    'human-ada'
    """

    def __init__(self, *, who: str = "") -> None:
        """`who`: whose answers they are; the login name if nothing is said. Kept answers are used again for the same
        person only."""
        self._who = str(who) or _login()
        self._terminal: Terminal | None = None
        self._folder: Path | None = None

    @property
    def name(self) -> str:
        return f"human-{self._who}"

    @property
    def traits(self) -> Traits:
        """Everything but whole texts: nobody can say how likely those are."""
        abilities = frozenset({"generate", "likelihood", "chat", "image", "audio", "video"})
        return Traits(abilities=abilities, window=_WINDOW, interactive=True)  # type: ignore[arg-type]

    async def identify(self) -> Mapping[str, str]:
        return {"name": "human", "who": self._who}

    async def open(self) -> None:
        """Find the terminal.

        Raises:
            BadOption: There is none.
        """
        if self._terminal is None:
            self._terminal = self._find_terminal()
            self._folder = Path(tempfile.mkdtemp(prefix="assay-human-"))

    async def close(self) -> None:
        """Stop waiting for an answer; remove the files that were shown."""
        terminal, folder = self._terminal, self._folder
        self._terminal = self._folder = None
        if terminal is not None:
            terminal.close()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """In the order of the documents."""
        for requests in grouped(window):
            for outcome in await asyncio.to_thread(self._answer_group, requests):
                yield outcome

    def _find_terminal(self) -> Terminal:
        return Tty()

    def _answer_group(self, requests: list[Request]) -> list[Outcome]:
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
                return _failed(requests, "bad request", "nobody can say how likely a whole text is")
        except _Partial as error:
            return _failed(requests, "bad request", str(error))
        except (AssayError, OSError, ValueError, SyntaxError) as error:  # what Pillow and our loaders raise
            return _failed(requests, "bad media", str(error))
        if values is None:
            return _failed(
                requests, "skipped", "it was left out; it is asked again when the run is continued"
            )
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
        terminal.say(heading(request))
        terminal.say(shown(request.prompt, self._show))
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
            raise _Partial(
                "some choices of this document were answered before: --refresh asks for all of them"
            )
        found: list[LogProbability] = []
        if asked:
            question, choices = choices_of(asked, self._show)
            terminal.say(heading(asked[0]))
            terminal.say(question)
            terminal.say("\n".join(f"  [{at}] {choice}" for at, choice in enumerate(choices, 1)))
            while (line := terminal.ask(HINT_CHOICE)) is not None and line.strip() != _SKIP:
                if (chosen := read_choice(line, len(choices))) is not None:
                    found = likelihoods(*chosen, len(choices))
                    break
                terminal.say(f"a number from 1 to {len(choices)}, please")
            else:
                return None
        given = iter(found)
        return [next(given) if request in asked else _NO_OPINION for request in requests]

    def _show(self, part: Media) -> str:
        if self._folder is None:
            raise RuntimeError("nothing is shown before open()")
        return save_medium(part, self._folder)


class _Partial(ValueError):
    """Only some of the choices of a document are asked for."""


def _failed(requests: Sequence[Request], kind: str, message: str) -> list[Outcome]:
    return [Failure(request_id=request.id, kind=kind, message=message) for request in requests]


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without such a user
        return "somebody"
