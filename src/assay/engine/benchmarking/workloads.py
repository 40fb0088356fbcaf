"""Synthetic requests that measure the throughput of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from assay.core.errors import InvalidOption
from assay.core.ports import Ability, Traits
from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood, Settings

__all__ = ["WORKLOADS", "WorkloadSize", "build_requests", "select_workloads"]

WORKLOADS: dict[str, frozenset[Ability]] = {
    "generate": frozenset({"generate"}),
    "likelihood": frozenset({"likelihood"}),
    "rolling": frozenset({"rolling"}),
    "chat": frozenset({"generate", "chat"}),
}
"""Name of a workload -> the abilities that a model needs for it."""

CHOICES = 4
"""Continuations per context of the workload `likelihood`."""

_WORDS = (
    "time year people way day man thing woman life child world school state family student group country problem hand part"
    " place case week company system program question work government number night point home water room mother area money"
    " story fact month lot right study book eye job word business issue side kind head house service friend father power"
    " hour game line end member law car city community name president team minute idea body information back parent face"
).split()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSize:
    """How many requests a workload has, and how long they are."""

    requests: int = 32
    prompt_words: int = 200
    """Mean number of words of a prompt."""

    output_tokens: int = 64
    """Mean limit of generated tokens."""


def select_workloads(traits: Traits, names: tuple[str, ...], *, is_remote: bool) -> tuple[str, ...]:
    """Return the workloads to measure: those named, or all that suit the model.

    Raises:
        InvalidOption: A name is unknown, or the model cannot answer the requests.
    """
    for name in names:
        if name not in WORKLOADS:
            raise InvalidOption(
                f"unknown workload `{name}`", where="--workloads", hint=f"one of {', '.join(WORKLOADS)}"
            )
        if missing := WORKLOADS[name] - traits.abilities:
            raise InvalidOption(
                f"the model does not support the workload `{name}`: it lacks {', '.join(sorted(missing))}",
                where="--workloads",
                hint="without --workloads, everything that the model supports is measured",
            )
    if names:
        return tuple(dict.fromkeys(names))
    suitable = [name for name, needed in WORKLOADS.items() if needed <= traits.abilities]
    # a chat server sends texts as messages, so that `generate` would measure `chat` twice; locally, chat is a template
    is_chat_server = is_remote and "chat" in traits.abilities and "likelihood" not in traits.abilities
    return tuple(name for name in suitable if name != ("generate" if is_chat_server else "chat"))


def build_requests(workload: str, size: WorkloadSize, *, seed: int = 0) -> list[Request]:
    """Return the requests of a workload. Another seed gives other texts, which no prefix cache knows."""
    random = Random(f"{workload} {seed}")
    build: Callable[[Random, WorkloadSize, str], list[Request]] = {
        "generate": _build_generations,
        "chat": _build_generations,
        "likelihood": _build_likelihoods,
        "rolling": _build_rolling,
    }[workload]
    return build(random, size, workload)


def _build_generations(random: Random, size: WorkloadSize, workload: str) -> list[Request]:
    """Prompts and limits of unequal lengths: between a quarter and seven quarters of the mean."""
    found: list[Request] = []
    for number in range(size.requests):
        text = _draw_text(random, _draw_length(random, size.prompt_words))
        prompt = (
            Prompt((Message("user", (Text(text),)),), chat=True)
            if workload == "chat"
            else Prompt.of_text(text)
        )
        limit = _draw_length(random, size.output_tokens)
        settings = Settings({"max_gen_toks": limit, "until": [], "do_sample": False})
        found.append(Generate(task=f"bench_{workload}", document=number, prompt=prompt, settings=settings))
    return found


def _build_likelihoods(random: Random, size: WorkloadSize, workload: str) -> list[Request]:
    """Multiple choice: all contexts share three quarters of their words, as with few-shot examples."""
    shared = _draw_text(random, max(1, size.prompt_words * 3 // 4))
    found: list[Request] = []
    for number in range(-(-size.requests // CHOICES)):
        own = _draw_text(random, _draw_length(random, max(1, size.prompt_words // 4)))
        prompt = Prompt.of_text(f"{shared}\n\nQuestion: {own}\nAnswer:")
        for choice in range(CHOICES):
            continuation = f" {choice} {_draw_text(random, random.randint(1, 8))}"
            found.append(
                Likelihood(
                    task=f"bench_{workload}",
                    document=number,
                    index=choice,
                    prompt=prompt,
                    continuation=continuation,
                )
            )
    return found[: size.requests]


def _build_rolling(random: Random, size: WorkloadSize, workload: str) -> list[Request]:
    return [
        RollingLikelihood(
            task=f"bench_{workload}",
            document=number,
            prompt=Prompt.of_text(_draw_text(random, _draw_length(random, size.prompt_words))),
        )
        for number in range(size.requests)
    ]


def _draw_length(random: Random, mean: int) -> int:
    return random.randint(max(1, mean // 4), max(1, mean * 7 // 4))


def _draw_text(random: Random, words: int) -> str:
    return " ".join(random.choices(_WORDS, k=words))
