"""Dialogue tasks for tests: guessing a number, and an agent that moves a lift with tools."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.making import Function, write_task

GUESSING = """
import random

def doc_to_visual(doc):
    return []

def doc_to_text(
    doc, lmms_eval_specific_kwargs=None, previous_output=None, round_idx=None, previous_round_info=None
):
    if round_idx is None:
        return f"{doc['name']}: guess my number from 0 to {doc['top']}."
    info = previous_round_info or {"asked": []}
    guess = int(previous_output[-1])
    info = {"asked": [*info["asked"], guess], "draw": random.random()}
    assert len(previous_output) == round_idx == len(info["asked"])
    if guess == doc["secret"]:
        return None, None, True, [*previous_output, f"found in {round_idx}"], info
    word = "more" if guess < doc["secret"] else "less"
    text = f"{doc['name']}: it is {word} than {guess}. You said {info['asked']}. Mood {info['draw']}."
    return [], text, False, previous_output, info

def doc_to_messages(doc, lmms_eval_specific_kwargs=None, **told):
    made = doc_to_text(doc, **told)
    if not told:
        return [{"role": "user", "content": [{"type": "text", "text": made}]}]
    _, text, terminal, outputs, info = made
    return [{"role": "user", "content": [{"type": "text", "text": f"[chat] {text}"}]}], terminal, outputs, info

def process_results(doc, results):
    (rounds,) = results
    assert isinstance(rounds, list)
    return {"rounds": len(rounds) - 1, "found": float(rounds[-1].startswith("found"))}
"""

LIFT = """
import copy
import json

def doc_to_visual(doc):
    return []

def doc_to_text(
    doc, lmms_eval_specific_kwargs=None, previous_output=None, round_idx=None, previous_round_info=None
):
    if round_idx is None:
        return f"{doc['name']}: floor {doc['floor']}, go to {doc['goal']}."
    info = previous_round_info or {
        "state": {"floor": doc["floor"]}, "tool_calls": 0, "valid_tool_calls": 0, "invalid_steps": 0
    }
    state = info["state"]
    call = previous_output[-1].strip()
    if call == "done":
        final = {"success": state["floor"] == doc["goal"], "state": state, "trace": list(previous_output)}
        return None, None, True, [json.dumps(final)], info
    if call in ("up", "down"):
        state["floor"] += 1 if call == "up" else -1
        info["tool_calls"] += 1
        info["valid_tool_calls"] += 1
        info["last_tool_result"] = "ok"
    else:
        info["invalid_steps"] += 1
        info["last_tool_result"] = f"no tool {call}"
    text = f"{doc['name']}: floor {state['floor']}, go to {doc['goal']}. {info['last_tool_result']}"
    return [], text, False, previous_output, info

def process_results(doc, results):
    (final,) = results
    said = json.loads(final)
    return {"success": float(said["success"]), "calls": said.get("tool_calls", len(said["trace"]) - 1)}
"""

NUMBERS = [3, 0, 7, 5, 1, 6, 2, 4]


def write_guessing(folder: Path, documents: int = 8, **keys: Any) -> Path:
    """Write a multi-round task; a binary search needs one to four rounds."""
    rows = [{"name": f"game {n}", "secret": NUMBERS[n % 8], "top": 7} for n in range(documents)]
    metrics = [{"metric": "rounds"}, {"metric": "found"}]
    given: dict[str, Any] = {
        "helpers": GUESSING,
        "output_type": "generate_until_multi_round",
        "doc_to_visual": Function("utils.doc_to_visual"),
        "doc_to_text": Function("utils.doc_to_text"),
        "doc_to_target": "{{secret}}",
        "process_results": Function("utils.process_results"),
        "metric_list": [{**metric, "aggregation": "mean", "higher_is_better": True} for metric in metrics],
        "generation_kwargs": {"max_new_tokens": 8, "temperature": 0, "do_sample": False},
        **keys,
    }
    return write_task(folder / "guessing", "guessing", rows, **given)


def write_lift(folder: Path, documents: int = 4, **keys: Any) -> Path:
    """Write an agentic task: a lift that goes from floor 0 to the index of its document."""
    rows = [{"name": f"lift {n}", "floor": 0, "goal": n} for n in range(documents)]
    metrics = [{"metric": "success"}, {"metric": "calls"}]
    given: dict[str, Any] = {
        "helpers": LIFT,
        "output_type": "generate_until_agentic",
        "doc_to_visual": Function("utils.doc_to_visual"),
        "doc_to_text": Function("utils.doc_to_text"),
        "doc_to_target": "{{goal}}",
        "process_results": Function("utils.process_results"),
        "metric_list": [{**metric, "aggregation": "mean", "higher_is_better": True} for metric in metrics],
        "generation_kwargs": {"max_new_tokens": 8, "max_agentic_steps": 5},
        **keys,
    }
    return write_task(folder / "lift", "lift", rows, **given)


def halve(request: Any) -> str:
    """Guess by binary search, from the guesses in the prompt."""
    low, high = 0, 8
    text = request.prompt.text
    said = [int(word) for word in re.findall(r"\d+", text.partition("You said")[2].partition("]")[0])]
    for before, after in pairwise(said):
        low, high = (before + 1, high) if after > before else (low, before)
    if said:
        low, high = (said[-1] + 1, high) if "is more than" in text else (low, said[-1])
    return str((low + high) // 2)


def ride(request: Any) -> str:
    """Go up until the goal is reached, then answer `done`."""
    floor, goal = (int(word) for word in re.findall(r"floor (-?\d+), go to (\d+)", request.prompt.text)[0])
    return "done" if floor == goal else "up"
