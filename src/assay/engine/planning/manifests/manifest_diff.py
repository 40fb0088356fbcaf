"""Compare two manifests: a stored run, and the same options now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.core.options.run_spec import list_options

__all__ = [
    "KINDS",
    "ManifestChange",
    "compare_manifests",
    "list_differences",
    "list_scoring_changes",
    "shorten",
]

KINDS = ("scores", "data", "prompt", "task", "code", "tools", "settings", "template", "model", "versions")
"""What can change: stored scores that do not follow from the stored responses; documents; prompts; task files; helper files and Assay's code; MCP servers and programs of agents; options and generation settings; the chat
template; other properties of the model; versions of packages."""

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestChange:
    """One change since a run."""

    kind: str
    what: str
    count: int = 1
    """How many documents, requests or files it affects."""

    total: int | None = None
    """Out of how many, if known."""

    examples: tuple[Mapping[str, Any], ...] = field(default=())
    """The first few: the place, and both values."""


def compare_manifests(then: Manifest, now: Manifest) -> list[ManifestChange]:
    """Return every difference that may affect prompts, answers or scores."""
    return [
        *_compare_versions(then, now),
        *_compare_code(then, now),
        *_compare_model(then, now),
        *_compare_judges(then, now),
        *_compare_options(then, now),
        *_compare_tasks(then, now),
    ]


def _compare_versions(then: Manifest, now: Manifest) -> Iterator[ManifestChange]:
    old, new = then.get("versions", {}), now.get("versions", {})
    changes = [
        *list_differences(old, new, skip=("packages",)),
        *list_differences(old.get("packages", {}), new.get("packages", {})),
    ]
    for name, was, is_now in changes:
        yield ManifestChange(kind="versions", what=f"{name}: {shorten(was)} before, {shorten(is_now)} now")


def _compare_code(then: Manifest, now: Manifest) -> Iterator[ManifestChange]:
    changed = [name for name, _, _ in list_differences(then.get("code", {}), now.get("code", {}))]
    if changed:
        yield ManifestChange(
            kind="code", what=f"Assay's code changed: {', '.join(changed)}", count=len(changed)
        )
    helpers = [path for path, _, _ in list_differences(_by_name(then), _by_name(now))]
    if helpers:
        shown = ", ".join(helpers[:3]) + (f" and {len(helpers) - 3} more" if len(helpers) > 3 else "")
        yield ManifestChange(kind="code", what=f"helper files changed: {shown}", count=len(helpers))


def _by_name(manifest: Manifest) -> dict[str, str]:
    """Return helper files by folder and name: a checkout may have another path on another machine."""
    return {"/".join(Path(path).parts[-2:]): digest for path, digest in manifest.get("helpers", {}).items()}


def _compare_model(then: Manifest, now: Manifest) -> Iterator[ManifestChange]:
    old, new = then.get("model", {}).get("identity", {}), now.get("model", {}).get("identity", {})
    for key, was, is_now in list_differences(old, new):
        kind = "template" if "template" in key else "model"
        yield ManifestChange(
            kind=kind, what=f"the model's `{key}`: {shorten(was)} before, {shorten(is_now)} now"
        )


def _compare_judges(then: Manifest, now: Manifest) -> Iterator[ManifestChange]:
    old, new = then.get("judges", {}), now.get("judges", {})
    if old.keys() != new.keys():
        names = [", ".join(f"`{name}`" for name in judges) or "none" for judges in (old, new)]
        yield ManifestChange(kind="model", what=f"the judge: {names[0]} before, {names[1]} now")
    for name, was, is_now in list_differences(old, new):
        if name in old and name in new:
            changes = ", ".join(
                f"`{key}`: {shorten(before)} before, {shorten(after)} now"
                for key, before, after in list_differences(was, is_now)
            )
            yield ManifestChange(kind="model", what=f"the judge `{name}`: {changes}")


def _compare_options(then: Manifest, now: Manifest) -> Iterator[ManifestChange]:
    old, new = then.get("options", {}), now.get("options", {})
    for name, _, option in list_options():
        if (
            option.affects_results
            and name in old
            and name not in ("tasks", "model_args")
            and old[name] != new.get(name)
        ):
            what = f"--{name}: {shorten(old[name])} before, {shorten(new.get(name))} now"
            yield ManifestChange(kind="settings", what=what)


def _compare_tasks(then: Manifest, now: Manifest) -> Iterator[ManifestChange]:
    old, new = then.get("tasks", {}), now.get("tasks", {})
    for name in [name for name in old if name not in new]:
        yield ManifestChange(kind="task", what=f"{name}: the task no longer exists")
    for name in [name for name in new if name not in old]:
        yield ManifestChange(kind="task", what=f"{name}: the task is new")
    for name, was in old.items():
        if name in new:
            yield from _compare_task(name, was, new[name])


def _compare_task(name: str, then: Manifest, now: Manifest) -> Iterator[ManifestChange]:
    data_then, data_now = then.get("dataset", {}), now.get("dataset", {})
    if data_then.get("digest") != data_now.get("digest"):
        counts = f"{data_then.get('documents')} documents before, {data_now.get('documents')} now"
        yield ManifestChange(kind="data", what=f"{name}: the dataset changed ({counts})")
    if then.get("settings") != now.get("settings"):
        changes = [
            key for key, _, _ in list_differences(then.get("settings") or {}, now.get("settings") or {})
        ]
        yield ManifestChange(
            kind="settings", what=f"{name}: generation settings changed: {', '.join(changes)}"
        )
    if then.get("num_fewshot") != now.get("num_fewshot"):
        what = f"{name}: {then.get('num_fewshot')} examples before, {now.get('num_fewshot')} now"
        yield ManifestChange(kind="settings", what=what)
    scoring = [*list_scoring_changes(then, now)]
    if scoring:
        yield ManifestChange(kind="task", what=f"{name}: changed: {', '.join(scoring)}", count=len(scoring))
    elif then.get("config") != now.get("config"):
        yield ManifestChange(kind="task", what=f"{name}: the task file or a helper changed")


def list_scoring_changes(then: Manifest, now: Manifest) -> Iterator[str]:
    """Yield changed filters and metrics of a task: `metric exact_match`, `filter strip`."""
    for kind, key in (("filter", "filters"), ("metric", "metrics")):
        for name, was, is_now in list_differences(then.get(key, {}), now.get(key, {})):
            state = " (new)" if was is None else " (gone)" if is_now is None else ""
            yield f"{kind} {name}{state}"


def list_differences(then: Manifest, now: Manifest, skip: tuple[str, ...] = ()) -> list[tuple[str, Any, Any]]:
    """Return (key, value before, value now) of each difference."""
    names = [name for name in (*then, *(name for name in now if name not in then)) if name not in skip]
    return [(name, then.get(name), now.get(name)) for name in names if then.get(name) != now.get(name)]


def shorten(value: Any) -> str:
    """Return a value as a text of at most 60 characters."""
    if value is None:
        return "nothing"
    text = str(value)
    return text if len(text) <= 60 else f"{text[:28]}…{text[-28:]}"
