"""What an agent did on a document, for its page: how it ended, a timeline of its turns, checks, changes and output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.records.agents import AgentEvent
from assay.store.documents.details import DocumentRecord, RequestRecord

__all__ = ["build_agent_cards"]

_NUMBERS = (
    ("turns", "turns"),
    ("tool_calls", "tool calls"),
    ("tool_errors", "tool errors"),
    ("tokens", "tokens"),
    ("cost_usd", "cost in $"),
    ("user_turns", "messages of the user"),
    ("user_cost_usd", "cost of the user in $"),
    ("seconds", "seconds"),
    ("exit_code", "exit code"),
)


@dataclass(slots=True, kw_only=True)
class AgentStep:
    """One step of an agent: a turn of the model, a call of a tool, or a message of the user."""

    who: str
    """`model`, `tool` or `user`."""

    title: str
    detail: str = ""
    effect: str = ""
    result: str = ""
    state: str = ""
    """What is unusual about it; empty if nothing is."""

    seconds: float = 0.0
    tokens: int = 0
    cost: float | None = None
    total_cost: float = 0.0
    share: float = 0.0
    """Its time in percent of the longest step."""


def build_agent_cards(record: DocumentRecord) -> list[dict[str, Any]]:
    """Return a card per repeat. The agent of a card whose end is `open` is still at work, or was interrupted."""
    repeats = {*record.agents, *(one.repeat for one in record.asked)} if record.agents else set()
    return [
        _build_card(
            repeat,
            record.agents.get(repeat, []),
            [one for one in record.asked if one.repeat == repeat],
            record.prompts,
        )
        for repeat in sorted(repeats)
    ]


def _build_card(
    repeat: int, events: Sequence[AgentEvent], asked: Sequence[RequestRecord], prompts: Sequence[str]
) -> dict[str, Any]:
    end: Mapping[str, Any] = next((one.content for one in events if one.kind == "end"), {})
    first = prompts[asked[0].prompt] if asked and asked[0].prompt < len(prompts) else ""
    steps = list(_list_steps(asked, events, first))
    longest = max((step.seconds for step in steps), default=0.0)
    cost = 0.0
    for step in steps:
        cost += step.cost or 0.0
        step.total_cost = cost
        step.share = round(100 * step.seconds / longest, 1) if longest else 0.0
    reports: Mapping[str, Any] = end.get("check_reports") or {}
    return {
        "repeat": repeat,
        "end": end.get("end") or "open",
        "why": end.get("why", ""),
        "numbers": {name: end[key] for key, name in _NUMBERS if end.get(key)} | _count(end, steps),
        "steps": steps,
        "has_costs": any(step.cost is not None for step in steps),
        "changes": end.get("changes", ()),
        "missing": end.get("missing", ()),
        "checks": [
            {
                "name": name,
                "score": score,
                "reason": reports.get(name, {}).get("reason", ""),
                "output": reports.get(name, {}).get("output", ""),
            }
            for name, score in (end.get("checks") or {}).items()
        ],
        "diff": [_classify_line(line) for line in str(end.get("diff") or "").splitlines()],
        "output": end.get("output", ""),
        "transcript": [] if asked else end.get("transcript") or [],
        "matches": bool(end.get("expected_digest")) and end["expected_digest"] == end["state_digest"],
    }


def _count(end: Mapping[str, Any], steps: Sequence[AgentStep]) -> dict[str, Any]:
    """Return the numbers of an agent that has not ended yet."""
    if end:
        return {}
    turns = [step for step in steps if step.who == "model"]
    calls = [step for step in steps if step.who == "tool"]
    found = {"turns": len(turns), "tool calls": len(calls), "tokens": sum(step.tokens for step in turns)}
    return {name: count for name, count in found.items() if count}


def _begins_with(prompt: str, event: AgentEvent) -> bool:
    """Whether a message of the user is in the first prompt, so it came before the first turn."""
    text = str(event.content.get("text", ""))
    return (
        text in prompt
        or json.dumps(text)[1:-1] in prompt
        or json.dumps(text, ensure_ascii=False)[1:-1] in prompt
    )


def _list_steps(
    asked: Sequence[RequestRecord], events: Sequence[AgentEvent], first_prompt: str
) -> Iterator[AgentStep]:
    """Yield turns of the model, calls of tools and messages of the user, in the order in which they happened."""
    waiting = [event for event in events if event.kind in ("call", "result", "user")]
    if waiting and waiting[0].kind == "user" and (not asked or _begins_with(first_prompt, waiting[0])):
        yield _describe_user(waiting.pop(0))
    for number, request in enumerate(asked, 1):
        yield _describe_turn(number, request)
        calls = len(request.response.tool_calls) if request.response is not None else 0
        while waiting and (calls or waiting[0].kind == "user"):
            event = waiting.pop(0)
            if event.kind == "user":
                yield _describe_user(event)
                break
            result = waiting.pop(0) if waiting and waiting[0].kind == "result" else None
            calls -= 1
            yield _describe_call(event, result)
    while waiting:
        event = waiting.pop(0)
        if event.kind == "user":
            yield _describe_user(event)
        elif event.kind == "call":
            result = waiting.pop(0) if waiting and waiting[0].kind == "result" else None
            yield _describe_call(event, result)


def _describe_turn(number: int, request: RequestRecord) -> AgentStep:
    response = request.response
    usage = None if response is None else response.usage
    names = [call.name for call in response.tool_calls] if response is not None else []
    text = "" if response is None or not isinstance(response.value, str) else response.value
    return AgentStep(
        who="model",
        title=f"turn {number}",
        detail=f"calls {', '.join(names)}" if names else text,
        seconds=(response.seconds or 0.0) if response is not None else 0.0,
        tokens=usage.input_tokens + usage.output_tokens if usage is not None else 0,
        cost=usage.cost_usd if usage is not None else None,
        state="" if response is not None else "failed" if request.failures else "waits for the model",
    )


def _describe_call(event: AgentEvent, result: AgentEvent | None) -> AgentStep:
    content: Mapping[str, Any] = {} if result is None else result.content
    return AgentStep(
        who="tool",
        title=event.content["name"],
        detail=event.content["arguments"],
        effect=event.content["effect"],
        result=content.get("text", ""),
        seconds=float(content.get("seconds") or 0.0),
        state="no result yet" if result is None else "failed" if content.get("error") else "",
    )


def _describe_user(event: AgentEvent) -> AgentStep:
    return AgentStep(
        who="user",
        title=event.content.get("speaker") or "user",
        detail=event.content.get("text", ""),
        cost=event.content.get("cost_usd"),
        state="ended the conversation" if event.content.get("ended") else "",
    )


def _classify_line(line: str) -> tuple[str, str]:
    """Return the class and the text of a line of a diff."""
    if line.startswith(("+++", "---", "@@")):
        return "diff-head", line
    kinds = {"+": "diff-add", "-": "diff-remove"}
    return kinds.get(line[:1], ""), line
