"""Agents: loops in which a model calls tools, talks to a simulated user and changes an environment.

What the code of a task needs: `tool` declares a function as a tool, `EnvironmentContext` is what an environment is made
with, and the steps are what a solver returns.
"""

from assay.agents.functions import TOOLS, FunctionTool, tool
from assay.agents.solvers import (
    SOLVERS,
    AgentState,
    AskModel,
    AskUser,
    CallTools,
    Finished,
    ReactSolver,
    Solver,
    ToolLoop,
)
from assay.agents.tools import AgentTool, CheckReport, Effect, Environment, EnvironmentContext, ToolOutput

__all__ = [
    "SOLVERS",
    "TOOLS",
    "AgentState",
    "AgentTool",
    "AskModel",
    "AskUser",
    "CallTools",
    "CheckReport",
    "Effect",
    "Environment",
    "EnvironmentContext",
    "Finished",
    "FunctionTool",
    "ReactSolver",
    "Solver",
    "ToolLoop",
    "ToolOutput",
    "tool",
]
