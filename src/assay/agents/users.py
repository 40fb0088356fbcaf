"""The user that an agent talks to: a script, or a second model with instructions of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from assay.agents.solvers import Entry
from assay.core.records.agents import UserSpec
from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Failure, Outcome

__all__ = ["ModelUser", "ScriptedUser", "SimulatedUser", "UserReply"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserReply:
    """What the user said."""

    text: str = ""
    ended: bool = False
    """Whether the user ended the conversation."""

    failure: str = ""
    """Why there is no reply; empty if there is one."""

    cost_usd: float | None = None
    speaker: str = ""
    """The model that spoke, or `script`."""


class SimulatedUser(Protocol):
    """Replies to an agent."""

    def reply(self, entries: Sequence[Entry], turn: int) -> UserReply:
        """Return the reply number `turn` after this conversation."""
        ...


class ScriptedUser:
    """Says the lines of a script in order, whatever the agent says. The end of the script ends the conversation."""

    def __init__(self, lines: Sequence[str], stop: str) -> None:
        self._lines = lines
        self._stop = stop

    def reply(self, entries: Sequence[Entry], turn: int) -> UserReply:
        """Return the next line."""
        if turn >= len(self._lines):
            return UserReply(ended=True, speaker="script")
        return _read_reply(str(self._lines[turn]), self._stop, speaker="script", cost_usd=None)


class ModelUser:
    """A model that plays the user. It sees the texts of the conversation, not the tool calls."""

    def __init__(
        self,
        spec: UserSpec,
        instructions: str,
        ask: Callable[[Generate], Outcome],
        *,
        name: str,
        chat: bool,
        seed: int,
        task: str,
        document: int,
        repeat: int,
    ) -> None:
        self._spec, self._instructions, self._ask = spec, instructions, ask
        self._name, self._chat = name, chat
        settings = {"until": [], "max_gen_toks": 512, "temperature": 0.0, **spec.generation_kwargs}
        self._settings = Settings({"seed": seed, **settings})
        self._task, self._document, self._repeat = task, document, repeat

    def reply(self, entries: Sequence[Entry], turn: int) -> UserReply:
        """Ask the model for the next message of the user."""
        request = Generate(
            task=self._task,
            document=self._document,
            index=turn,
            repeat=self._repeat,
            round=turn,
            prompt=self._build_prompt(entries),
            settings=self._settings,
        )
        outcome = self._ask(request)
        if isinstance(outcome, Failure):
            return UserReply(failure=f"{outcome.kind}: {outcome.message}", speaker=self._name)
        cost = outcome.usage.cost_usd if outcome.usage is not None else None
        text = str(outcome.value)
        if not text.strip():
            return UserReply(failure="it returned an empty text", speaker=self._name, cost_usd=cost)
        return _read_reply(text, self._spec.stop, speaker=self._name, cost_usd=cost)

    def _build_prompt(self, entries: Sequence[Entry]) -> Prompt:
        """Build the conversation from the side of the user: the agent's texts are the messages it gets."""
        turns: list[tuple[str, str]] = []
        if self._spec.starts:
            turns.append(("user", self._spec.greeting))
        for entry in entries:
            if entry.role == "user":
                turns.append(("assistant", entry.text))
            elif entry.role == "assistant" and entry.text and not entry.calls:
                turns.append(("user", entry.text))
        if self._chat:
            messages = [Message("system", (Text(self._instructions),))] if self._instructions else []
            messages += [
                Message("user" if role == "user" else "assistant", (Text(text),)) for role, text in turns
            ]
            return Prompt(tuple(messages), chat=True)
        lines = [f"{'Agent' if role == 'user' else 'User'}: {text}" for role, text in turns]
        return Prompt.of_text("\n\n".join([self._instructions, *lines, "User:"]))


def _read_reply(text: str, stop: str, *, speaker: str, cost_usd: float | None) -> UserReply:
    ended = bool(stop) and stop in text
    return UserReply(
        text=text.replace(stop, "").strip() if ended else text.strip(),
        ended=ended,
        speaker=speaker,
        cost_usd=cost_usd,
    )
