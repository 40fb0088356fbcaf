"""What a plan consists of: tasks, judges, the model's identity, a name for the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from assay.core.fingerprints import digest_json
from assay.core.options.run_spec import RunSpec
from assay.core.ports import Model
from assay.core.records.specs import GroupSpec, TaskSpec
from assay.core.records.subsets import STRATIFIED, DocumentSubset
from assay.sandboxes.program_runner import ProgramRunner
from assay.scoring.scorer import Scorer
from assay.tasks.files.helper_functions import find_functions
from assay.tasks.files.selection import Selection
from assay.tasks.task import Task
from assay.user_code.random_state import LOOKUPS_BEFORE_PROMPTS, GeneratorStates

__all__ = ["Plan", "PlannedJudge", "PlannedTask", "count_name_lookups"]


def count_name_lookups(selection: Selection) -> dict[str, int]:
    """Return how often lm-eval looks up names before it loads each task, and, under an empty name, before the prompts.

    Each lookup draws from Python's global generator. lm-eval builds the members of a group and then looks up the name of
    each task among them twice. After the last task it looks up the names of all tasks again.
    """
    before: dict[str, int] = {}
    waiting = 0

    def visit(name: str) -> None:
        nonlocal waiting
        group = selection.groups.get(name)
        if group is None:
            before[name], waiting = waiting, 0
            return
        for member in group.members:
            visit(member)
        waiting += 2 * sum(member not in selection.groups for member in group.members)

    for name in selection.requested:
        visit(name)
    alone = sum(name not in selection.groups for name in selection.requested)
    before[""] = waiting + LOOKUPS_BEFORE_PROMPTS * alone + 2 * (len(selection.tasks) - alone)
    return before


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJudge:
    """A model that judges answers."""

    name: str
    model: Model
    identity: Mapping[str, str]
    needed: bool
    """Whether a metric needs it; otherwise only helper code may call it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """A task that was checked and can run."""

    task: Task
    scorer: Scorer
    documents: int
    digest: str
    """Changes with the task file, its helpers, its data and the options that affect prompts."""

    config_digest: str = ""
    """Changes with the merged YAML and its helper files."""

    data_digest: str = ""
    """Changes with the documents and the few-shot documents."""

    user_model: str = ""
    """The model that plays the user of an agent task, as judges are named; empty: there is none."""

    subset: DocumentSubset | None = None
    """The weighted subset of its documents; None: documents have equal weights."""

    prompt_states: GeneratorStates | None = None
    """The global random generators before the first prompt, if the code of the task may use them; None: the seed."""

    @property
    def spec(self) -> TaskSpec:
        return self.task.spec

    @property
    def has_unequal_weights(self) -> bool:
        """Whether its documents are a sample whose documents stand for different numbers of others."""
        return self.subset is not None and self.subset.method == STRATIFIED

    @property
    def has_user_code(self) -> bool:
        """Whether judging or rendering its documents calls code that is not Assay's."""
        return (
            self.spec.unsafe_code
            or self.task.is_dialogue
            or self.spec.config.get("class") is not None
            or bool(find_functions(self.spec.config))
            or self.scorer.runs_task_code
            or self.has_custom_filters
        )

    @property
    def has_media(self) -> bool:
        """Whether prompts may contain media; for class tasks and dialogues only rendering shows it."""
        return self.task.has_media or self.task.is_dialogue or self.spec.config.get("class") is not None

    @property
    def has_custom_filters(self) -> bool:
        """Whether a filter is not one of Assay's."""
        steps = (step for pipeline in self.scorer.pipelines for step in pipeline.steps)
        return any(not step.factory.__module__.startswith("assay.") for step in steps)

    @property
    def uses_services(self) -> bool:
        """Whether its code may call judges or execute programs while it judges a document."""
        return self.spec.process_results is not None or self.spec.unsafe_code

    @property
    def is_judged_per_document(self) -> bool:
        """Whether documents are judged independently: no filter looks across them."""
        return all(pipeline.per_document for pipeline in self.scorer.pipelines)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan:
    """What a run will do: tasks, documents, the model's identity, its id."""

    spec: RunSpec
    model: Model
    identity: Mapping[str, str]
    tasks: Mapping[str, PlannedTask]
    groups: Mapping[str, GroupSpec]
    top: tuple[str, ...]
    run_id: str
    digest: str
    """The full hash; the run id contains its start."""

    folder: Path
    """The folder of the run."""

    programs: ProgramRunner = field(compare=False)
    """Executes code written by the model, for tasks that do."""

    random_states: GeneratorStates | None = None
    """The global random generators after the tasks were loaded, before the first prompt."""

    judges: Mapping[str, PlannedJudge] = field(default_factory=dict)
    default_judges: tuple[str, ...] = ()
    """The judges of `--judge`, for metrics and helpers that name none."""

    lock: Mapping[str, Any] | None = None
    """The lockfile of the run: name, digest, text, and what differed from it."""

    notes: tuple[str, ...] = ()
    """Things worth knowing before the run starts."""

    install_command: str = ""
    """The command that installs the packages that task code imports when it is called; empty if none is missing."""

    @property
    def model_digest(self) -> str:
        return digest_json(dict(self.identity))

    @property
    def has_user_code(self) -> bool:
        """Whether a task or group has Python code: then the run needs a `UserCodeExecutor`."""
        aggregations = (metric.aggregation for group in self.groups.values() for metric in group.metrics)
        return any(planned.has_user_code for planned in self.tasks.values()) or any(
            map(callable, aggregations)
        )

    @property
    def documents(self) -> int:
        """The number of documents."""
        return sum(planned.documents for planned in self.tasks.values())

    def __repr__(self) -> str:
        tasks = ", ".join(list(self.tasks)[:3]) + (
            f", … {len(self.tasks) - 3} more" if len(self.tasks) > 3 else ""
        )
        return f"Plan({self.model.name} on {tasks}: {self.documents:,} documents, run {self.run_id!r})"

    def _repr_html_(self) -> str:
        """Return the tasks as a table for notebooks. All text is escaped."""
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{planned.documents:,}</td><td>{planned.task.num_fewshot}</td>"
            f"<td>{escape(str(planned.spec.output_type))}</td></tr>"
            for name, planned in self.tasks.items()
        )
        heads = "".join(f"<th>{title}</th>" for title in ("task", "documents", "n-shot", "output type"))
        notes = "".join(f"<div><small>{escape(note)}</small></div>" for note in self.notes)
        head = f"<div><b>{escape(self.model.name)}</b> · {escape(self.run_id)} · {self.documents:,} documents</div>"
        return f'<div class="assay-plan">{head}<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{notes}</div>'

    def list_tasks(self, group: str) -> list[str]:
        """Return the tasks of a group, in order."""
        return Selection(groups=dict(self.groups)).leaves(group)
