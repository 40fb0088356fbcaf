"""Set up the judges of a run: create, check and name them before the first request."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, ErrorGroup, InvalidOption, UnsupportedRequest
from assay.core.fingerprints import canonical_json
from assay.core.options.parsing import parse_arguments
from assay.core.options.run_spec import RunSpec
from assay.core.ports import Ability, Model
from assay.core.records.agents import UserSpec
from assay.core.records.messages import Audio, Image, Video
from assay.core.records.specs import TaskSpec
from assay.core.secrets import redact_values
from assay.engine.judging.judge_inputs import build_judge_input
from assay.engine.planning.records import PlannedJudge
from assay.engine.planning.setup.model_setup import get_rate_limits, probe_model, register_model_class
from assay.models import make_model
from assay.scoring.judges.panel import PanelMember
from assay.scoring.judges.spec import JudgeModel, JudgeSpec
from assay.scoring.scorer import Scorer
from assay.tasks.files.helper_functions import HelperFunction, compatibility_layers
from assay.tasks.task import Task

__all__ = ["JudgeRegistry", "PlannedJudge"]

_MEDIA_ABILITIES: Mapping[type, Ability] = {Image: "image", Audio: "audio", Video: "video"}


class JudgeRegistry:
    """All judges of a run: from `--judge` for all tasks, or from a task file for its own metrics."""

    def __init__(self, spec: RunSpec, given: Sequence[Model] = ()) -> None:
        self._models_given = {model.name: model for model in given}
        self._common = dict(spec.judge_args)
        self._users = list(spec.user)
        self._budgets = get_rate_limits(spec)
        self._models: dict[str, Model] = {}
        self._names: dict[str, str] = {}
        """Model and arguments -> the name of the judge."""

        self._needed: set[str] = set()
        self._media_shown: dict[tuple[str, str], set[Ability]] = {}
        """(Judge, place of the metric) -> the media it gets."""

        if spec.judge_args and not spec.judge:
            raise InvalidOption("--judge_args without --judge", where="--judge_args", hint="add --judge NAME")
        self.default_judges = tuple(
            dict.fromkeys(self._register(_parse_judge(word), "--judge").name for word in spec.judge)
        )
        """The judges for metrics and helpers that name none."""

        self.notes: list[str] = []

    def assign_judges(self, task: Task, scorer: Scorer, first: Any) -> None:
        """Assign judges to the panels of a task, and check them on its first document.

        Raises:
            AssayError: A metric has no judge, a judge lacks a capability, or a prompt cannot be rendered.
        """
        scorer.assign_judges(self._choose_members)
        document, requests = first
        for panel in scorer.panels:
            target = task.target(dict(document.fields)) if panel.spec.reference is None else None
            judge_input = build_judge_input(
                task, panel, document, requests, "…", target, requests[0].prompt.media
            )
            asked = panel.build_requests(judge_input, task.name, document.index)
            for member, rounds in asked:
                media = {_MEDIA_ABILITIES[type(part)] for part in rounds[0][0].prompt.media}
                self._media_shown.setdefault((member.name, panel.spec.where), set()).update(media)
                self._check_abilities(panel.spec.where, member.name, media)
        self._warn_about_judge_calls(task.spec)

    def assign_user(self, user: UserSpec | None) -> str:
        """Return the name of the model that plays the user of an agent task; empty if no model does.

        Raises:
            InvalidOption: There is no model for it.
        """
        if user is None or user.script is not None:
            return ""
        if user.model:
            entry, where = JudgeModel(user.model, dict(user.model_args)), f"{user.where}.model"
        elif len(self._users) == 1:
            entry, where = _parse_judge(self._users[0]), "--user"
        else:
            raise InvalidOption(
                "the task needs a model that plays the user"
                if not self._users
                else "only one model can play the user",
                where=user.where if not self._users else "--user",
                hint="add --user NAME, or `model: NAME` below `user:`",
            )
        name = self._register(entry, where, role="user").name
        self._needed.add(name)
        return name

    async def _probe(self) -> list[AssayError]:
        """Probe the servers of judges and return the errors.

        An unreachable server is a note, not an error, because the run may be finished.
        """
        names = [name for name in self._models if name in self._needed]
        found = await asyncio.gather(
            *[probe_model(self._models[name]) for name in names], return_exceptions=True
        )
        problems: list[AssayError] = []
        for name, notes in zip(names, found, strict=True):
            if isinstance(notes, AssayError):
                where = f"the judge `{name}`" + (f", {notes.where}" if notes.where else "")
                problems.append(type(notes)(notes.what, where=where, hint=notes.hint))
            elif isinstance(notes, BaseException):
                raise notes
            else:
                self.notes += [f"the judge `{name}`: {note}" for note in notes]
        for (name, where), media in self._media_shown.items():
            try:
                self._check_abilities(where, name, media)
            except UnsupportedRequest as error:
                problems.append(error)
        return problems

    async def identify(self) -> dict[str, PlannedJudge]:
        """Probe all judges and return them with their identities.

        Raises:
            ErrorGroup: A judge cannot be used: no key, unknown model, missing capability.
        """
        if problems := await self._probe():
            raise ErrorGroup(problems)
        return {
            name: PlannedJudge(
                name=name,
                model=model,
                identity=redact_values(await model.identify()),
                needed=name in self._needed,
            )
            for name, model in self._models.items()
        }

    def _choose_members(self, spec: JudgeSpec) -> list[PanelMember]:
        if spec.models:
            members = [self._register(entry, f"{spec.where}.model") for entry in spec.models]
        else:
            members = [
                PanelMember(name, "chat" in self._models[name].traits.abilities)
                for name in self.default_judges
            ]
        if not members:
            raise InvalidOption(
                f"the metric `{spec.metric}` needs a judge",
                where=spec.where,
                hint="add --judge NAME, or `model: NAME` below `judge:`",
            )
        if spec.quorum is not None and spec.quorum > len(members) * spec.repeats:
            raise InvalidOption(
                f"`quorum: {spec.quorum}` of {len(members) * spec.repeats} verdicts can never be reached",
                where=f"{spec.where}.quorum",
            )
        self._needed |= {member.name for member in members}
        return members

    def _register(self, entry: JudgeModel, where: str, *, role: str = "") -> PanelMember:
        """Add a model once per role: the user of an agent has calls and costs of its own."""
        arguments = {**self._common, **entry.arguments} if where == "--judge" else dict(entry.arguments)
        described = f"{role} {entry.model} {canonical_json(arguments)}"
        if described not in self._names:
            model = self._models_given.get(entry.model) or _make_judge(
                entry.model, arguments, self._budgets, where
            )
            if "generate" not in model.traits.abilities:
                raise UnsupportedRequest(
                    f"the model `{model.name}` cannot {'play a user' if role else 'judge'}: it does not generate text",
                    where=where,
                )
            first = f"{role} {model.name}" if role else model.name
            name, number = first, 1
            while name in self._models:
                number += 1
                name = f"{first} ({number})"
            self._names[described] = name
            self._models[name] = model
        name = self._names[described]
        return PanelMember(name, "chat" in self._models[name].traits.abilities)

    def _check_abilities(self, where: str, name: str, media: set[Ability]) -> None:
        missing = sorted(media - self._models[name].traits.abilities)
        if missing:
            raise UnsupportedRequest(
                f"the judge `{name}` does not support {', '.join(missing)}",
                where=f"{where}.media",
            )

    def _warn_about_judge_calls(self, spec: TaskSpec) -> None:
        """Add a note if helper code calls judges by itself."""
        path: Path | None = getattr(spec.process_results, "path", None)
        if not isinstance(spec.process_results, HelperFunction) or path is None:
            return
        for layer in compatibility_layers():
            missing = layer.missing_judge(path)
            if missing is None:
                continue
            self._needed |= set(self.default_judges[:1])
            if missing and not self.default_judges:
                self.notes.append(f"{spec.name}: {missing}")


def _parse_judge(word: str) -> JudgeModel:
    """Parse `NAME` or `NAME,key=value,key=value`."""
    name, _, rest = word.partition(",")
    if not name.strip():
        raise InvalidOption(f"`{word}` has no judge name", where="--judge", hint="NAME or NAME,key=value")
    return JudgeModel(name.strip(), parse_arguments(rest) if rest else {})


def _make_judge(name: str, arguments: Mapping[str, Any], budgets: Mapping[str, Any], where: str) -> Model:
    try:
        register_model_class(name)
        return make_model(name, arguments, **budgets)
    except AssayError as error:
        raise type(error)(error.what, where=where, hint=error.hint) from None
