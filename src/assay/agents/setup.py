"""Check an agent task before the first request."""

from __future__ import annotations

from assay.agents.environments import ENVIRONMENTS
from assay.agents.functions import TOOLS, to_tool
from assay.agents.solvers import make_solver
from assay.core.errors import AssayError, ErrorGroup
from assay.core.records.specs import TaskSpec

__all__ = ["check_agent"]


def check_agent(spec: TaskSpec) -> None:
    """Check the solver and the tools of an agent task. Its environment is opened with the first document.

    Raises:
        AssayError: A name is unknown, the solver cannot be made, or the signature of a tool has no JSON schema.
    """
    if spec.agent is None:
        return
    problems: list[AssayError] = []
    try:
        make_solver(spec.agent.solver, spec.agent.solver_options, where=spec.place("solver"))
    except AssayError as error:
        problems.append(error)
    if isinstance(spec.agent.environment, str):
        try:
            ENVIRONMENTS.get(spec.agent.environment, where=spec.place("environment"))
        except AssayError as error:
            problems.append(error)
    for index, value in enumerate(spec.agent.tools):
        where = f"{spec.place('tools')}[{index}]"
        try:
            if isinstance(value, str):
                TOOLS.get(value, where=where)
            else:
                to_tool(value, where=where)
        except AssayError as error:
            problems.append(error)
    if problems:
        raise problems[0] if len(problems) == 1 else ErrorGroup(problems)
