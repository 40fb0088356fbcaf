"""Compare a lockfile with what the same options give now, item by item."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from assay.engine.lockfiles.lockfile import decode_digests
from assay.engine.planning.manifests.manifest_diff import ManifestChange, list_differences, shorten
from assay.engine.results.rendered_documents import cut_around_difference

__all__ = ["compare_locks"]

Content = Mapping[str, Any]

MAX_EXAMPLES = 3
_MAX_NUMBERS = 8
"""Document numbers to list."""

_DATA_KEYS = ("path", "name", "split", "revision", "commit", "version")
_TEXT_KEYS = frozenset(
    ("doc_to_text", "doc_to_target", "doc_to_choice", "description", "doc_to_messages", "doc_to_visual")
)


def compare_locks(then: Content, now: Content) -> list[ManifestChange]:
    """Return every difference between a lockfile and the current one. Mirrors are no difference: the content decides."""
    return [
        *_compare_versions(then, now),
        *_compare_options(then, now),
        *_compare_model(then, now),
        *_compare_judges(then, now),
        *_compare_tasks(then, now),
    ]


def _compare_versions(then: Content, now: Content) -> Iterator[ManifestChange]:
    for key, label in (("assay", "Assay"), ("python", "Python")):
        if then.get(key) != now.get(key):
            yield _change(
                "versions", f"{label}: {shorten(then.get(key))} before, {shorten(now.get(key))} now"
            )
    for name, was, is_now in list_differences(_versions(then), _versions(now)):
        entry = then.get("packages", {}).get(name) or now.get("packages", {}).get(name) or {}
        users = ", ".join(map(str, entry.get("used_by", ()))) if isinstance(entry, Mapping) else ""
        used = f" (used by: {users})" if users else ""
        yield _change("versions", f"{name}: {shorten(was)} before, {shorten(is_now)} now{used}")


def _versions(content: Content) -> dict[str, Any]:
    return {
        name: entry.get("version") if isinstance(entry, Mapping) else entry
        for name, entry in content.get("packages", {}).items()
    }


def _compare_options(then: Content, now: Content) -> Iterator[ManifestChange]:
    skipped = ("tasks", "include_path", "data_root", "model_args")
    for name, was, is_now in list_differences(then["options"], now["options"], skip=skipped):
        if name in now["options"] and name in then["options"]:
            yield _change("settings", f"--{name}: {shorten(was)} before, {shorten(is_now)} now")


def _compare_model(then: Content, now: Content) -> Iterator[ManifestChange]:
    old, new = then["model"], now["model"]
    if old.get("name") != new.get("name"):
        yield _change("model", f"the model: `{old.get('name')}` before, `{new.get('name')}` now")
    for key, was, is_now in list_differences(old.get("identity", {}), new.get("identity", {})):
        kind = "template" if "template" in key else "model"
        label = "the chat template" if kind == "template" else "the model"
        yield _change(kind, f"{label}'s `{key}`: {shorten(was)} before, {shorten(is_now)} now")


def _compare_judges(then: Content, now: Content) -> Iterator[ManifestChange]:
    old, new = then["judges"], now["judges"]
    for name, was, is_now in list_differences(old, new):
        if was is None or is_now is None:
            yield _change("model", f"the judge `{name}` is {'new' if was is None else 'gone'}")
            continue
        for key, before, after in list_differences(was, is_now):
            yield _change(
                "model", f"the judge `{name}`, `{key}`: {shorten(before)} before, {shorten(after)} now"
            )


def _compare_tasks(then: Content, now: Content) -> Iterator[ManifestChange]:
    old, new = then["tasks"], now["tasks"]
    for name in [name for name in old if name not in new]:
        yield _change("task", f"{name}: the task no longer exists or is no longer selected")
    for name in [name for name in new if name not in old]:
        yield _change("task", f"{name}: the task is new")
    for group, was, is_now in list_differences(then.get("groups", {}), now.get("groups", {})):
        yield _change("task", f"group {group}: members {shorten(was)} before, {shorten(is_now)} now")
    for name, task in old.items():
        if name in new:
            yield from _compare_task(name, task, new[name])


def _compare_task(name: str, then: Content, now: Content) -> Iterator[ManifestChange]:
    yield from _compare_data(name, then, now)
    yield from _compare_files(name, then, now)
    if then.get("num_fewshot") != now.get("num_fewshot"):
        what = f"{name}: {then.get('num_fewshot')} few-shot examples before, {now.get('num_fewshot')} now"
        yield _change("settings", what)
    for key, was, is_now in list_differences(then.get("settings") or {}, now.get("settings") or {}):
        yield _change(
            "settings", f"{name}: generation setting `{key}`: {shorten(was)} before, {shorten(is_now)} now"
        )
    for kind, key in (("filter", "filters"), ("metric", "metrics")):
        for one, was, is_now in list_differences(then.get(key, {}), now.get(key, {})):
            state = (
                "is new"
                if was is None
                else "is gone"
                if is_now is None
                else "changed: its arguments or its code"
            )
            yield _change("code", f"{name}: {kind} `{one}` {state}")
    for metric, was, is_now in list_differences(then.get("judged", {}), now.get("judged", {})):
        old, new = was or {}, is_now or {}
        parts = [part for part in ("judges", "prompt") if old.get(part) != new.get(part)]
        yield _change("task", f"{name}: judged metric `{metric}`: {' and '.join(parts)} changed")
    yield from _compare_prompts(name, then.get("prompts", {}), now.get("prompts", {}))


def _compare_data(name: str, then: Content, now: Content) -> Iterator[ManifestChange]:
    old, new = then.get("dataset", {}), now.get("dataset", {})
    moved = [
        f"{key} {shorten(old.get(key))} before, {shorten(new.get(key))} now"
        for key in _DATA_KEYS
        if old.get(key) != new.get(key)
    ]
    changed = [key for key in ("digest", "fewshot_digest") if old.get(key) != new.get(key)]
    documents = _find_changed_documents(then.get("content", {}), now.get("content", {}))
    if moved and not changed:
        yield _change("data", f"{name}: the dataset moved, its content is the same: {'; '.join(moved)}")
    elif moved:
        yield _change("data", f"{name}: the dataset moved: {'; '.join(moved)}")
    if "digest" in changed:
        counts = f"{old.get('documents')} rows before, {new.get('documents')} now"
        where = f"; evaluated documents that differ: {_format_numbers(documents)}" if documents else ""
        yield _change(
            "data", f"{name}: the content of the dataset changed ({counts}){where}", max(1, len(documents))
        )
    elif documents:
        what = f"{name}: fields or targets of documents changed: {_format_numbers(documents)}"
        yield _change("data", what, len(documents))
    if "fewshot_digest" in changed:
        yield _change("data", f"{name}: the few-shot examples changed")
    if then.get("documents") != now.get("documents"):
        what = f"{name}: {then.get('documents')} documents evaluated before, {now.get('documents')} now"
        yield _change("data", what)


def _compare_files(name: str, then: Content, now: Content) -> Iterator[ManifestChange]:
    """Name each changed file, and each changed key of the task file with both values."""
    is_same_config = then.get("config") == now.get("config")
    for file, was, is_now in list_differences(then.get("files", {}), now.get("files", {})):
        if is_same_config and file.endswith((".yaml", ".yml")):
            continue  # a comment, or the order of keys
        state = "is new" if was is None else "is gone" if is_now is None else "changed"
        is_code = file.endswith(".py")
        yield _change(
            "code" if is_code else "task", f"{name}: {'helper' if is_code else 'file'} {file} {state}"
        )
    for key, was, is_now in list_differences(then.get("config", {}), now.get("config", {})):
        label = "template" if key in _TEXT_KEYS else "key"
        old, new = cut_around_difference(_to_text(was), _to_text(is_now))
        yield _change("task", f"{name}: {label} `{key}` changed: {old!r} before, {new!r} now")


def _compare_prompts(name: str, then: Content, now: Content) -> Iterator[ManifestChange]:
    if then.get("digest") == now.get("digest"):
        return
    was, is_now = decode_digests(then.get("digests")), decode_digests(now.get("digests"))
    different = _find_changed_documents(then, now)
    numbers = [number for number in different if number in was and number in is_now]
    old, new = _index_readable(then), _index_readable(now)
    readable = [number for number in numbers if number in old and number in new]
    examples: list[dict[str, Any]] = []
    for number in readable:
        if len(examples) < MAX_EXAMPLES:
            before, after = cut_around_difference(
                _first_difference(old[number], new[number]), _first_difference(new[number], old[number])
            )
            if before != after:  # equal if only media differ
                examples.append({"document": number, "then": before, "now": after})
    groups = {
        "prompts changed": numbers,
        "no longer evaluated": [number for number in different if number not in is_now],
        "newly evaluated": [number for number in different if number not in was],
    }
    what = "; ".join(f"{label}: {_format_documents(listed)}" for label, listed in groups.items() if listed)
    if numbers and not readable:
        what += "; their texts are not in the lockfile (`assay lock --prompts all` keeps them)"
    yield ManifestChange(
        kind="prompt",
        what=f"{name}: {what or 'prompts changed'}",
        count=max(1, len(different)),
        total=len({*was, *is_now}),
        examples=tuple(examples),
    )


def _format_documents(numbers: list[int]) -> str:
    return f"document{'' if len(numbers) == 1 else 's'} {_format_numbers(numbers)}"


def _find_changed_documents(then: Content, now: Content) -> list[int]:
    """Return the documents whose short digests differ, or that only one of the files has."""
    if then.get("digest") == now.get("digest"):
        return []
    old, new = decode_digests(then.get("digests")), decode_digests(now.get("digests"))
    return sorted(number for number in {*old, *new} if old.get(number) != new.get(number))


def _index_readable(prompts: Content) -> dict[int, Content]:
    return {
        entry["document"]: entry
        for entry in prompts.get("first") or ()
        if isinstance(entry, Mapping) and "document" in entry
    }


def _first_difference(entry: Content, other: Content) -> str:
    """Return the first prompt, continuation or other part that differs from another document, as text."""
    for key in (*entry, *(key for key in other if key not in entry)):
        mine, others = entry.get(key), other.get(key)
        if mine == others:
            continue
        if isinstance(mine, list) and isinstance(others, list):
            pairs = zip(mine, others, strict=False)
            found = next((one for one, two in pairs if one != two), None)
            return _to_text(found if found is not None else mine)
        return _to_text(mine)
    return ""


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _format_numbers(numbers: list[int]) -> str:
    more = f" and {len(numbers) - _MAX_NUMBERS} more" if len(numbers) > _MAX_NUMBERS else ""
    return ", ".join(map(str, numbers[:_MAX_NUMBERS])) + more


def _change(kind: str, what: str, count: int = 1) -> ManifestChange:
    return ManifestChange(kind=kind, what=what, count=count)
