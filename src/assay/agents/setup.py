"""Check an agent task before the first request."""

from __future__ import annotations

from pathlib import Path

from assay.agents.environments import ENVIRONMENTS
from assay.agents.functions import TOOLS, to_tool
from assay.agents.solvers import ExternalSolver, make_solver
from assay.core.errors import AssayError, ErrorGroup, TaskError
from assay.core.records.specs import TaskSpec

__all__ = ["check_agent"]


def check_agent(spec: TaskSpec) -> None:
    """Check the solver, the tools and the options of an agent task. Its environment is opened with the first document.

    Raises:
        AssayError: A name is unknown, the solver cannot be made, or the signature of a tool has no JSON schema.
    """
    if spec.agent is None:
        return
    problems: list[AssayError] = []
    try:
        solver = make_solver(spec.agent.solver, spec.agent.solver_options, where=spec.place("solver"))
        if isinstance(solver, ExternalSolver):
            problems += _check_external(spec, solver)
    except AssayError as error:
        problems.append(error)
    if isinstance(spec.agent.environment, str):
        try:
            environment = ENVIRONMENTS.get(spec.agent.environment, where=spec.place("environment"))
        except AssayError as error:
            problems.append(error)
        else:
            check_options = getattr(environment, "check_options", lambda _: ())
            for problem in check_options(spec.agent.environment_options):
                problems.append(
                    TaskError(problem.what, where=_find_place(spec, problem.where), hint=problem.hint)
                )
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


def _find_place(spec: TaskSpec, key: str) -> str:
    """Return the place of a key, with the line of the nearest key around it whose line is known."""
    known = key
    while known not in spec.places and "." in known:
        known = known.rpartition(".")[0]
    return f"{spec.places[known]}, {key}" if known in spec.places else spec.place(key)


def _check_external(spec: TaskSpec, solver: ExternalSolver) -> list[AssayError]:
    """Return what is wrong with a task whose agent is a program."""
    agent, problems = spec.agent, list[AssayError]()
    assert agent is not None
    where = spec.place("solver")
    if agent.environment != "sandbox":
        what = "an external agent runs in a sandbox, but the task has another environment"
        problems.append(TaskError(what, where=where, hint="add `environment: sandbox`"))
    for key, given in (
        ("user", agent.user),
        ("tools", agent.tools),
        ("mcp", agent.environment_options.get("mcp")),
    ):
        if given:
            what = f"an external agent has tools of its own and talks to nobody: `{key}` has no effect"
            problems.append(TaskError(what, where=where, hint=f"remove `{key}`"))
    paths = [*solver.readable, *([solver.command[0]] if solver.command[0].startswith("/") else [])]
    for path in paths:
        if not Path(path).expanduser().exists():
            problems.append(TaskError(f"there is no `{path}`", where=where))
    return problems
