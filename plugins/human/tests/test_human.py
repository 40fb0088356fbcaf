"""A person at the terminal, ask_scripted by a script."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.making import ask, write_choices, write_task

import assay
from assay.core.ports import Traits
from assay.core.records.messages import Audio, Image, Message, Part, Prompt, Text, Video
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.records.responses import Failure, LogProbability, Outcome, Response
from assay.testing import MODEL_CHECKS
from assay_plugin_human import HumanModel
from assay_plugin_human.questions import parse_choice
from assay_plugin_human.terminal import Terminal


class Script:
    """A terminal with scripted answers: a list, or a function of the text shown so far."""

    def __init__(self, *lines: str | None, by: Callable[[str], str | None] | None = None) -> None:
        self.lines = list(lines)
        self.by = by
        self.seen: list[str] = []

    def show(self, text: str) -> None:
        self.seen.append(text)

    def ask(self, question: str) -> str | None:
        self.seen.append(question)
        return self.by("\n".join(self.seen)) if self.by else self.lines.pop(0)

    def close(self) -> None:
        """Nothing to close."""

    @property
    def text(self) -> str:
        return "\n".join(self.seen)


class ScriptedHuman(HumanModel):
    def __init__(self, script: Script) -> None:
        super().__init__(who="ada")
        self.script = script

    def open_terminal(self) -> Terminal:
        return self.script


def ask_scripted(script: Script, *requests: Request) -> list[Outcome]:
    return ask(ScriptedHuman(script), *requests)


def generate(text: str = "Hi", document: int = 0, *parts: Part, **settings: Any) -> Generate:
    prompt = Prompt((Message("user", (*parts, Text(text))),))
    return Generate(task="t", document=document, prompt=prompt, settings=Settings(settings))


def choices(document: int, *pairs: tuple[str, str]) -> list[Likelihood]:
    return [
        Likelihood(
            task="t", document=document, index=at, prompt=Prompt.of_text(prompt), continuation=continuation
        )
        for at, (prompt, continuation) in enumerate(pairs)
    ]


def probabilities(outcomes: list[Outcome]) -> list[float]:
    values = [outcome.value for outcome in outcomes if isinstance(outcome, Response)]
    return [round(math.exp(value.total), 4) for value in values if isinstance(value, LogProbability)]


def test_a_typed_line_is_the_answer_up_to_a_stop_string() -> None:
    script = Script("46 apples. Or so")
    (outcome,) = ask_scripted(script, generate("How many?", until=["."]))
    assert isinstance(outcome, Response) and outcome.value == "46 apples"
    assert "How many?" in script.text and "document 0" in script.text


def test_a_backslash_continues_on_the_next_line() -> None:
    (outcome,) = ask_scripted(Script("def f():\\", "    return 1"), generate())
    assert isinstance(outcome, Response) and outcome.value == "def f():\n    return 1"


@pytest.mark.parametrize("line", ["skip", " skip ", None])
def test_a_skipped_question_is_a_failure(line: str | None) -> None:
    (outcome,) = ask_scripted(Script(line), generate())
    assert isinstance(outcome, Failure) and outcome.kind == "skipped"


def test_documents_are_asked_in_order() -> None:
    script = Script("zero", "one", "two")
    asked = [generate(f"question {number}", number) for number in (2, 0, 1)]
    values = [outcome.value for outcome in ask_scripted(script, *asked) if isinstance(outcome, Response)]
    assert values == ["two", "zero", "one"]


def test_choices_are_shown_together_and_a_number_is_nearly_certain() -> None:
    script = Script("2")
    outcomes = ask_scripted(script, *choices(0, ("Sky?", " red"), ("Sky?", " blue"), ("Sky?", " green")))
    assert probabilities(outcomes) == [0.0, 1.0, 0.0]
    greedy = [
        outcome.value.greedy
        for outcome in outcomes
        if isinstance(outcome, Response) and isinstance(outcome.value, LogProbability)
    ]
    assert greedy == [False, True, False]
    assert "Sky?\n  [1] red\n  [2] blue\n  [3] green" in script.text
    assert script.text.count("Sky?") == 1


def test_the_confidence_becomes_the_probability() -> None:
    outcomes = ask_scripted(
        Script("1 70%"), *choices(0, ("Sky?", " blue"), ("Sky?", " red"), ("Sky?", " green"))
    )
    assert probabilities(outcomes) == [0.7, 0.15, 0.15]


@pytest.mark.parametrize("line", ["", "0", "4", "blue", "1 0", "1 101", "1 50 50", "1.5"])
def test_an_invalid_line_is_asked_again(line: str) -> None:
    assert parse_choice(line, 3) is None
    script = Script(line, "3")
    outcomes = ask_scripted(script, *choices(0, ("Sky?", "a"), ("Sky?", "b"), ("Sky?", "c")))
    assert probabilities(outcomes) == [0.0, 0.0, 1.0]
    assert "type a number from 1 to 3" in script.text


def test_skipping_skips_all_choices_of_a_document() -> None:
    outcomes = ask_scripted(Script("skip"), *choices(0, ("Sky?", "a"), ("Sky?", "b")))
    assert [isinstance(outcome, Failure) for outcome in outcomes] == [True, True]


def test_prompts_with_one_continuation_are_numbered() -> None:
    script = Script("2")
    pairs = (("It rains in the house", " so we stay in."), ("It rains outside", " so we stay in."))
    assert probabilities(ask_scripted(script, *choices(0, *pairs))) == [0.0, 1.0]
    assert "Which of these continues with: so we stay in." in script.text
    assert "[2] It rains outside" in script.text


def test_choices_without_a_question_are_not_asked() -> None:
    pairs = (("Sky?", "a"), ("Sky?", "b"), ("", "a"), ("", "b"))
    script = Script("1")
    outcomes = ask_scripted(script, *choices(0, *pairs))
    assert probabilities(outcomes) == [1.0, 0.0, 0.5, 0.5]


def test_incomplete_choices_fail() -> None:
    asked = choices(0, ("Sky?", "a"), ("Sky?", "b"), ("Sky?", "c"))[1:]
    outcomes = ask_scripted(Script(), *asked)
    assert all(isinstance(outcome, Failure) and "--refresh" in outcome.message for outcome in outcomes)


def test_rolling_likelihoods_fail() -> None:
    (outcome,) = ask_scripted(
        Script(), RollingLikelihood(task="t", document=0, prompt=Prompt.of_text("Once."))
    )
    assert isinstance(outcome, Failure)
    assert "rolling" not in HumanModel().traits.abilities


def test_a_chat_shows_the_roles() -> None:
    said = (Message("system", (Text("Be brief."),)), Message("user", (Text("Sum?"),)))
    request = Generate(task="t", document=0, prompt=Prompt(said, chat=True), settings=Settings({}))
    script = Script("5")
    ask_scripted(script, request)
    assert "system: Be brief.\nuser: Sum?" in script.text


def test_media_are_saved_as_files_until_close(tmp_path: Path) -> None:
    import numpy
    from PIL import Image as Pictures

    clip = tmp_path / "clip.mp4"
    parts: list[Part] = [
        Image(digest="red", load=lambda: Pictures.new("RGB", (4, 4), "red")),
        Audio(digest="beep", load=lambda: (numpy.zeros(800, numpy.float32), 16_000)),
        Video(digest="clip", load=lambda: clip, start_s=2.0),
        Video(digest="frames", load=lambda: [Pictures.new("RGB", (4, 4))] * 2),
    ]
    found: list[bool] = []

    def look(seen: str) -> str:
        words = [word.rstrip("]").rstrip(",") for word in seen.split() if word.startswith("/")]
        found.extend(Path(word).exists() for word in words)
        assert len(words) == 4 and "from 2.0 s" in seen
        return "something"

    clip.write_bytes(b"")
    script = Script(by=look)
    (outcome,) = ask_scripted(script, generate("What?", 0, *parts))
    assert isinstance(outcome, Response) and found == [True] * 4
    gone = [word.rstrip("]") for word in script.text.split() if word.endswith("red.png]")]
    assert not Path(gone[0]).exists()


def test_an_unreadable_image_fails_its_question() -> None:
    def load() -> Any:
        raise OSError("broken")

    bad, good = ask_scripted(Script("fine"), generate("a", 0, Image(digest="x", load=load)), generate("b", 1))
    assert isinstance(bad, Failure) and bad.kind == "bad media"
    assert isinstance(good, Response)


def test_the_person_is_part_of_the_identity() -> None:
    ada, bob = (asyncio.run(HumanModel(who=who).identify()) for who in ("ada", "bob"))
    assert ada != bob
    assert HumanModel().name.startswith("human-")


def test_a_run_is_scored_and_resumed(workspace: Path) -> None:
    tasks = [str(write_task(workspace)), str(write_choices(workspace))]
    first = Script("2", "2", "2", "2", "1", "2", "3", "skip", "5", "6")
    run = assay.run(model=ScriptedHuman(first), tasks=tasks)
    assert run.journal.count_outcomes("sums") == {"scored": 5, "failed": 1}
    assert run.results["choices"]["acc,none"] == 0.5
    second = Script("4")
    run = assay.run(model=ScriptedHuman(second), tasks=tasks)
    assert run.journal.count_outcomes("sums") == {"scored": 6}
    assert run.results["sums"]["exact_match,none"] == 1.0
    assert second.text.count("──") and "document 3" in second.text and "document 2" not in second.text


class Writer(HumanModel):
    """A person who only generates: choices are compared with each other, so their scores depend on the window."""

    def __init__(self) -> None:
        super().__init__(who="ada")

    @property
    def traits(self) -> Traits:
        own = super().traits
        return replace(own, abilities=own.abilities - {"likelihood"})

    def open_terminal(self) -> Terminal:
        return _FixedTerminal()

    def answer_question(self, requests: list[Request]) -> list[Outcome]:
        if isinstance(requests[0], Likelihood):
            return [Failure(request_id=one.id, kind="bad request", message="no choices") for one in requests]
        return super().answer_question(requests)


class _FixedTerminal:
    """A terminal that answers every question with the same text."""

    def show(self, text: str) -> None:
        """Show nothing."""

    def ask(self, question: str) -> str | None:
        return "five"

    def close(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
def test_the_model_fulfils_the_contract(check: Callable[..., None]) -> None:
    check(Writer)
