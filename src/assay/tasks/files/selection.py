"""Select tasks by name, group, tag, glob pattern, file or folder.

A group keeps the order of its members. Keys of a group that are not group keys override the keys of its members.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, ErrorGroup, TaskError, UnknownName
from assay.core.fingerprints import digest_json
from assay.core.records.specs import GroupSpec, TaskSpec
from assay.core.terminal_text import describe_invalid_name
from assay.tasks.files.dialects import detect_dialect
from assay.tasks.files.index import IndexEntry, TaskIndex, entry_from_file
from assay.tasks.files.registered_tasks import find_registered_task, find_registry_folder
from assay.tasks.files.task_loader import parse_group_metrics, task_from_config
from assay.tasks.files.yaml_reader import TaskFile, merge_includes, read_task_file

__all__ = [
    "Selection",
    "describe_folder_of_same_name",
    "is_prompt_pattern",
    "is_task_definition",
    "list_prompt_tasks",
    "select_tasks",
]

_GROUP_KEYS = frozenset(("group", "group_alias", "task", "aggregate_metric_list", "metadata"))
_NUMBERED = re.compile(r"-[1-9]\d*$")
"""The end of the name of a task that a group lists more than once."""
_DATASET_KEYS = ("dataset_path", "custom_dataset")
"""A group that passes one of these keys to its members defines those that no file defines."""


@dataclass(slots=True)
class Selection:
    """The tasks to run, in order, and the groups that report them."""

    tasks: dict[str, TaskSpec] = field(default_factory=dict)
    groups: dict[str, GroupSpec] = field(default_factory=dict)
    requested: list[str] = field(default_factory=list)
    """The names of the selected tasks and groups, with globs and tags expanded, in order."""

    notes: list[str] = field(default_factory=list)
    """Notes on names that several task roots define."""

    def leaves(self, group: str) -> list[str]:
        """Return every task of a group and of its nested groups, without duplicates, in order."""
        found: dict[str, None] = {}
        for member in self.groups[group].members:
            for name in self.leaves(member) if member in self.groups else [member]:
                found[name] = None
        return list(found)


def select_tasks(wanted: Sequence[str], index: TaskIndex) -> Selection:
    """Select the tasks and groups for a list of words. Report everything that is not found.

    Raises:
        ErrorGroup: All unknown names and broken task files.
    """
    selection = Selection()
    problems: list[AssayError] = []
    for word in wanted:
        try:
            _select_one(word, index, selection)
        except ErrorGroup as several:
            problems += several.errors
        except AssayError as error:
            problems.append(error)
    if problems:
        raise problems[0] if len(problems) == 1 else ErrorGroup(problems)
    return selection


def _select_one(word: str, index: TaskIndex, selection: Selection) -> None:
    if word in index.entries:
        entry = index.entries[word]
        _note_alternative(entry, index, selection)
        if note := describe_folder_of_same_name(word, entry):
            selection.notes.append(note)
        _add(entry, index, selection)
        return
    path = _to_path(word)
    label, _, name = word.partition("/")
    if label in index.labels and not path.exists():
        _select_from_root(name, index.labels[label], index, selection, word)
        return
    if path.suffix in (".yaml", ".yml") and (path.is_file() or "*" not in word):
        _add_file(path, index, selection)
        return
    if ("/" in word or word.startswith(".")) and path.is_dir():
        _add_folder(path, index, selection)
        return
    matches = [name for name in index.names() if fnmatchcase(name, word)] if _is_glob(word) else []
    if not matches and path.is_dir() and _has_task_files(path):
        _add_folder(path, index, selection)  # a bare name means a folder if no task has that name
        return
    if not matches:
        if not _add_unlisted_task(word, index, selection):
            raise _unknown_name_error(word, index)
        return
    covered = {
        leaf
        for name in matches
        if index.entries[name].kind == "group"
        for leaf in index.entries[name].members
    }
    only_tags = all(index.entries[name].kind == "tag" for name in matches)
    for name in matches:
        if only_tags or (index.entries[name].kind != "tag" and name not in covered):
            _add(index.entries[name], index, selection)


def _add_unlisted_task(word: str, index: TaskIndex, selection: Selection) -> bool:
    """Select a task that no file of its own defines: a class with a decorator, or one that a group makes from prompts or
    numbers. Return whether there is one."""
    registered = find_registered_task(word, index.roots)
    spec = task_from_config(registered) if registered is not None else _find_in_groups(word, index)
    if spec is None:
        return False
    _SelectionBuilder(index, selection).add_spec(spec)
    if spec.name not in selection.requested:
        selection.requested.append(spec.name)
    return True


def _find_in_groups(word: str, index: TaskIndex) -> TaskSpec | None:
    """Return the task that a group makes from one of its members, or None.

    lm_eval 0.4.1 puts the name of the group before some of them: `multimedqa_mmlu_anatomy`.
    """
    stem = _NUMBERED.sub("", word)
    for entry in list(index.entries.values()):
        if entry.kind != "group" or entry.path is None:
            continue
        name = word.removeprefix(f"{entry.name}_")
        if name != word and find_registry_folder(entry.path) is None:
            name = word
        if name == word and not any(
            (member == stem != word) or (":" in word and (member == "?" or word.startswith(f"{member}_")))
            for member in entry.members
        ):
            continue
        inside = Selection()
        try:
            _add(entry, index, inside)
        except AssayError:  # a group that is broken in another place
            continue
        if name in inside.tasks:
            return inside.tasks[name]
    return None


def describe_folder_of_same_name(word: str, entry: IndexEntry) -> str:
    """Return a note if the working directory has a folder with task files that is named like a selected task."""
    folder = _to_path(word)
    if not folder.is_dir() or not _has_task_files(folder):
        return ""
    defined = f", defined in {entry.file}" if entry.file else ""
    return f"`{word}` is the {entry.kind} of that name{defined}; use `./{word}` for the folder"


def _note_alternative(entry: IndexEntry, index: TaskIndex, selection: Selection) -> None:
    """Add a note if another well-known root defines the same name."""
    if entry.kind != "tag":
        other = index.find_alternative(entry)
        if other:
            selection.notes.append(f"`{entry.name}` is {entry.file}; use `{other}` for the other one")
        return
    for member in (index.entries[name] for name in entry.members):
        label = index.find_alternative(member).partition("/")[0]
        if label:
            selection.notes.append(
                f"`{entry.name}` uses the tasks of {member.root}; use `{label}/{entry.name}` for the others"
            )
            return


def _select_from_root(name: str, root: Path, index: TaskIndex, selection: Selection, word: str) -> None:
    """Select `lm_eval/NAME`: the task, group or tag of that root."""
    inside = index.view_from(root)
    own = {key: entry for key, entry in inside.entries.items() if entry.root == root}
    for key, entry in inside.entries.items():  # a tag is limited to the tasks of this root
        members = tuple(name for name in entry.members if name in own) if entry.root is None else ()
        if members:
            own[key] = entry._replace(members=members)
    if name not in own and not any(fnmatchcase(key, name) for key in own):
        raise UnknownName.of(
            "task", word, [f"{word.partition('/')[0]}/{key}" for key in own], where="--tasks"
        )
    for key in [name] if name in own else sorted(key for key in own if fnmatchcase(key, name)):
        _add(own[key], inside, selection)


def _to_path(word: str) -> Path:
    try:
        return Path(word).expanduser()
    except RuntimeError:  # `~nobody`
        return Path(word)


def _has_task_files(folder: Path) -> bool:
    """Return whether a folder has a YAML file in it or one level below. Deeper search could scan a whole disk."""
    return any(any(folder.glob(pattern)) for pattern in ("*.yaml", "*/*.yaml"))


def _add_folder(folder: Path, index: TaskIndex, selection: Selection) -> None:
    """Select everything in a folder. Its groups look for their members in the folder first."""
    inside = TaskIndex.build([folder])
    if not inside.entries and not inside.broken:
        raise UnknownName(
            f"the folder `{folder}` has no task file",
            where="--tasks",
            hint="a task file is a YAML file with the key `task`",
        )
    if inside.broken:
        raise ErrorGroup(error for _, error in inside.broken)
    both = TaskIndex(entries={**index.entries, **inside.entries}, broken=index.broken)
    covered = {
        member for entry in inside.entries.values() if entry.kind == "group" for member in entry.members
    }
    for name, entry in inside.entries.items():
        if entry.kind != "tag" and name not in covered:
            _add(entry, both, selection)


def _is_glob(word: str) -> bool:
    return any(character in word for character in "*?[")


def _unknown_name_error(word: str, index: TaskIndex, where: str = "--tasks") -> AssayError:
    """Return the error of a broken file of that name, or that the name is unknown."""
    for path, error in index.broken:
        if path.stem == word:
            return error
    return UnknownName.of("task", word, index.names(), where=where)


def _add_file(path: Path, index: TaskIndex, selection: Selection) -> None:
    entry = entry_from_file(read_task_file(path))
    if entry is None:
        raise TaskError(
            "the file defines neither a task nor a group", where=str(path), hint="add `task: my_task`"
        )
    _add(entry, index.with_neighbours(path) if entry.kind == "group" else index, selection)


def _add(entry: IndexEntry, index: TaskIndex, selection: Selection) -> None:
    if entry.kind == "tag":
        for name in entry.members:
            _add(index.entries[name], index, selection)
        return
    builder = _SelectionBuilder(index, selection)
    name = builder.add_task(entry, {}) if entry.kind == "task" else builder.add_group(entry, {})
    if name not in selection.requested:
        selection.requested.append(name)


class _SelectionBuilder:
    """Builds tasks and groups and passes overrides to their members."""

    def __init__(self, index: TaskIndex, selection: Selection) -> None:
        self.index = index
        self.selection = selection
        self._open: list[str] = []
        """The groups being built, outermost first, to detect a group that contains itself."""

        self._missing: list[AssayError] = []
        """The members of the group being built that no file defines."""

    def add_task(
        self, entry: IndexEntry, overrides: Mapping[str, Any], places: Mapping[str, str] | None = None
    ) -> str:
        """Add a task; `places` are those of the overrides."""
        return self.add_spec(self.build_task(entry, overrides, places))

    def build_task(
        self, entry: IndexEntry, overrides: Mapping[str, Any], places: Mapping[str, str] | None = None
    ) -> TaskSpec:
        assert entry.path is not None
        spec = task_from_config(read_task_file(entry.path), overrides)
        return replace(spec, places={**spec.places, **places}) if places else spec

    def add_spec(self, spec: TaskSpec) -> str:
        """Add a task. Two tasks of one name must have the same settings, because results are reported by name."""
        if self.has_other_settings(spec):
            raise TaskError(
                f"the task `{spec.name}` is selected twice with different settings",
                where=spec.path,
                hint="select one of them, or use separate runs",
            )
        self.selection.tasks[spec.name] = spec
        return spec.name

    def has_other_settings(self, spec: TaskSpec) -> bool:
        """Whether a task of that name is selected with other settings."""
        known = self.selection.tasks.get(spec.name)
        return known is not None and digest_json(known.config) != digest_json(spec.config)

    def add_group(self, entry: IndexEntry, overrides: Mapping[str, Any]) -> str:
        assert entry.path is not None
        file = read_task_file(entry.path)
        outside, self.index = self.index, self.index.view_from(entry.root)
        try:
            return self.build_group(entry.name, file.config, file, overrides)
        finally:
            self.index = outside

    def build_group(
        self, name: str, config: Mapping[str, Any], file: TaskFile, overrides: Mapping[str, Any]
    ) -> str:
        if name in self._open:
            chain = " > ".join((*self._open, name))
            raise TaskError(f"the group `{name}` contains itself: {chain}", where=str(file.path))
        self._open.append(name)
        passed_on = {key: value for key, value in config.items() if key not in _GROUP_KEYS}
        passed_on.update(overrides)
        members: list[str] = []
        listed = config.get("task")
        outside, self._missing = self._missing, []
        for member in [listed] if isinstance(listed, str) else listed or ():
            members += self.add_member(member, name, file, passed_on, members)
        if self._missing and not members:
            raise self._missing[0]
        self._missing = outside
        if problem := describe_invalid_name(name):
            raise TaskError(problem, where=file.places.get("group", str(file.path)))
        metadata = config.get("metadata")
        dialect = detect_dialect(file.path, config)
        self.selection.groups[name] = GroupSpec(
            name=name,
            path=str(file.path),
            dialect=dialect,
            alias=config.get("group_alias"),
            members=tuple(members),
            metrics=parse_group_metrics(
                config.get("aggregate_metric_list"),
                where=file.places.get("aggregate_metric_list", str(file.path)),
                dialect=dialect,
            ),
            metadata=metadata if isinstance(metadata, Mapping) else {},
        )
        self._open.pop()
        return name

    def add_member(
        self,
        member: Any,
        parent: str,
        file: TaskFile,
        overrides: Mapping[str, Any],
        earlier: Sequence[str] = (),
    ) -> list[str]:
        """Add a member of a group; `earlier` are the members before it."""
        where = file.places.get("task", str(file.path))
        if isinstance(member, str):
            return self.add_named_member(member, parent, file, overrides, inline=None)
        if isinstance(member, Mapping) and is_prompt_pattern(member.get("use_prompt")):
            return [
                self.add_spec(task_from_config(one)) for one in list_prompt_tasks(member, file, overrides)
            ]
        if not isinstance(member, Mapping) or not (member.get("group") or member.get("task")):
            raise TaskError(
                f"a member of the group `{parent}` must be a name, or have `task` or `group`", where=where
            )
        dialect = detect_dialect(file.path, file.config)
        if "group" in member:
            name = str(member["group"])
            known = self.index.entries.get(name)
            if known is not None and known.kind == "group":
                inner = {key: value for key, value in member.items() if key != "group"}
                return [self.add_group(known, {**overrides, **inner})]
            taken = name in self.selection.groups or name in self._open
            inner_name = name if dialect.keeps_inline_names and not taken else f"{parent}::{name}"
            outer = {} if dialect.separates_inline_groups else overrides
            return [self.build_group(inner_name, member, file, outer)]
        if "include" in member and str(member["task"]) in self.index.entries:
            member = merge_includes(TaskFile(file.path, member, file.places)).config
        both = {**member, **overrides} if dialect.prefers_group_keys else {**overrides, **member}
        return self.add_named_member(str(member["task"]), parent, file, both, inline=member, earlier=earlier)

    def add_named_member(
        self,
        name: str,
        parent: str,
        file: TaskFile,
        overrides: Mapping[str, Any],
        *,
        inline: Mapping[str, Any] | None,
        earlier: Sequence[str] = (),
    ) -> list[str]:
        entry = self.index.entries.get(name)
        if entry is None:
            if inline is None and (registry := find_registry_folder(file.path)) is not None:
                return self.add_registered_member(name, parent, file, registry, overrides)
            if not is_task_definition(inline or {}, overrides):
                raise _unknown_name_error(name, self.index, file.places.get("task", str(file.path)))
            config = {**overrides, "task": f"{parent}::{name}"}
            merged = merge_includes(TaskFile(file.path, config, file.places))
            return [self.add_spec(task_from_config(merged))]
        if entry.kind == "group":
            return [self.add_group(entry, {key: value for key, value in overrides.items() if key != "task"})]
        if entry.kind == "tag":
            kept = {key: value for key, value in overrides.items() if key != "task"}
            places = {key: _find_override(file, key, inline) for key in kept}
            return [self.add_task(self.index.entries[task], kept, places) for task in entry.members]
        places = {key: _find_override(file, key, inline) for key in overrides if key != "task"}
        spec = self.build_task(entry, {**overrides, "task": name}, places)
        number = 0
        while spec.name in earlier and self.has_other_settings(spec):
            number += 1  # lm_eval 0.4.2 to 0.4.11 number the members that list a task again
            spec = self.build_task(entry, {**overrides, "task": f"{name}-{number}"}, places)
        return [self.add_spec(spec)]

    def add_registered_member(
        self, name: str, parent: str, file: TaskFile, folder: Path, overrides: Mapping[str, Any]
    ) -> list[str]:
        """Add a member that a decorated class defines. A member that does not exist is left out, with a note, as in the
        versions with a registry."""
        registered = find_registered_task(name, [folder])
        if registered is not None:
            return [self.add_spec(task_from_config(registered, overrides))]
        error = _unknown_name_error(name, self.index, file.places.get("task", str(file.path)))
        if not isinstance(error, UnknownName):
            raise error
        self._missing.append(error)
        self.selection.notes.append(
            f"the group `{parent}` is evaluated without `{name}`, which no file defines, as in the version of {folder}"
        )
        return []


def list_prompt_tasks(
    member: Mapping[str, Any], file: TaskFile, overrides: Mapping[str, Any]
) -> list[TaskFile]:
    """Return a task for every prompt that a member of a group names with a pattern.

    The names are those of lm_eval 0.4.0: `anli_r1_anli.yaml:template-0`.
    """
    from assay.tasks.prompts.named_prompts import list_prompts  # loads Jinja

    merged = merge_includes(TaskFile(file.path, {**overrides, **member}, file.places))
    dataset, subset = str(merged.config.get("dataset_path", "")), merged.config.get("dataset_name")
    name = member.get("task") or (dataset if subset is None else f"{dataset}_{subset}")
    where = _find_override(file, "use_prompt", member)
    prompts = list_prompts(str(member["use_prompt"]), dataset, subset, folder=file.path.parent, where=where)
    tasks = []
    for prompt in prompts:
        suffix = prompt.rpartition("/")[2] if ".yaml" in prompt else prompt
        own = {"task": f"{name}_{suffix}", "use_prompt": prompt, "output_type": "generate_until"}
        places = {**merged.places, "use_prompt": where}
        tasks.append(TaskFile(file.path, {**merged.config, **own}, places))
    return tasks


def is_prompt_pattern(use_prompt: Any) -> bool:
    """Whether `use_prompt` names several prompts: `promptsource:*`."""
    return isinstance(use_prompt, str) and ":" in use_prompt and _is_glob(use_prompt.partition(":")[2])


def is_task_definition(member: Mapping[str, Any], overrides: Mapping[str, Any]) -> bool:
    """Whether a member of a group defines a task, itself or with the keys of the group, rather than naming one."""
    return "class" in member or len(member) > 2 or any(key in overrides for key in _DATASET_KEYS)


def _find_override(file: TaskFile, key: str, member: Mapping[str, Any] | None) -> str:
    """Return `file:line` of a key that a group passes to a member; the file of the group if the line is unknown."""
    listed = file.config.get("task")
    place = None
    if member is not None and key in member and isinstance(listed, list):
        number = next((index for index, one in enumerate(listed) if one is member), None)
        place = file.places.get(f"task[{number}].{key}")
    return place or file.places.get(key) or str(file.path)
