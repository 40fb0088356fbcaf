"""What an agent's run comes to: the text that is judged, and with it, if wanted, every step.

A task's helper writes JSON when the agent submits. An agent that never does is judged by what is written here in
its place: that it did not succeed, and how far it got.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["AgenticRecord"]

_STATE_KEYS = ("cash", "days_elapsed", "inventory", "mobile_data_working")
"""Entries of a state that are repeated at the top: helpers of lmms-eval's tasks look for them there."""


@dataclass(slots=True)
class AgenticRecord:
    """One agent's steps and its last word."""

    full: bool = False
    final: Any = ""
    steps: list[dict[str, Any]] = field(default_factory=list)

    def add(self, *, number: int, asked: str, said: str, end: bool, info: Any, text: Any) -> None:
        """Keep one step, where all are wanted."""
        if not self.full:
            return
        step: dict[str, Any] = {
            "round_idx": number,
            "round_input": asked,
            "model_output": said,
            "terminal": end,
        }
        if isinstance(info, Mapping):
            step["state"] = info.get("state")
            step["tool_result"] = info.get("last_tool_result")
            for key in ("tool_calls", "valid_tool_calls", "invalid_steps"):
                step[key] = info.get(key)
        if text is not None:
            step["next_input"] = text
        self.steps.append(json.loads(json.dumps(step, default=str)))  # as it was: states are changed in place

    def closed(self, info: Any, outputs: list[Any]) -> Any:
        """The text that is judged."""
        final = self.final
        if info is not None and not (isinstance(final, str) and final.strip().startswith("{")):
            final = json.dumps(_unfinished(info, final, outputs), ensure_ascii=False)
        return self._with_steps(final) if self.full else final

    def _with_steps(self, final: Any) -> Any:
        try:
            said = json.loads(final)
        except (TypeError, ValueError):
            return final
        if not isinstance(said, dict):
            return final
        said |= {"agentic_trace_mode": "full", "agentic_rounds": self.steps}
        return json.dumps(said, ensure_ascii=False)


def _unfinished(info: Any, final: Any, outputs: list[Any]) -> dict[str, Any]:
    """What stands for the answer of an agent that gave none."""
    known = info if isinstance(info, Mapping) else {}
    state = known.get("state", {})
    calls = known.get("tool_calls", 0)
    return {
        "success": False,
        "error": "max_agentic_steps_reached",
        "tool_calls": float(calls),
        "valid_tool_calls": float(known.get("valid_tool_calls", calls)),
        "invalid_steps": float(known.get("invalid_steps", 0.0)),
        "state": state,
        "last_model_output": final,
        "trace": outputs,
        **({key: state[key] for key in _STATE_KEYS if key in state} if isinstance(state, Mapping) else {}),
    }
