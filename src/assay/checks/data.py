"""Check the dataset: available, with the splits that the task names, and not empty."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from assay.checks.findings import Findings, collect_errors
from assay.core.errors import AssayError, DatasetError
from assay.core.records.specs import TaskSpec
from assay.tasks.task import RenderingOptions, Task, open_task

__all__ = ["DataChecker"]

_LOCAL_BUILDERS = ("json", "csv", "parquet", "arrow", "text", "imagefolder", "audiofolder", "videofolder")
_UNREACHABLE_MESSAGES = (
    "offline",
    "couldn't reach",
    "couldn't find cache",
    "connection",
    "timed out",
    "max retries",
    "name resolution",
    "client has been closed",
    "cannot send a request",
    "localentrynotfound",
)
"""Parts of the messages of the `datasets` library when the hub is unreachable."""


class DataChecker:
    """Opens the data of many tasks; looks for an unavailable dataset once, not once per task."""

    def __init__(self, data_root: str | None = None, *, allow_data_outside: bool = False) -> None:
        self._data_root = data_root
        self._allow_data_outside = allow_data_outside
        self._unavailable: dict[str, AssayError] = {}

    def open(self, spec: TaskSpec, findings: Findings) -> Task | None:
        """Return the task with its data, or None if the data are unavailable or incomplete."""
        known = None if spec.custom_dataset else self._unavailable.get(str(spec.dataset_path))
        if known is not None:
            _report_unavailable(spec, known, findings)
            return None
        opened: list[Task] = []
        with collect_errors(findings, "data", spec):
            try:
                options = RenderingOptions(
                    data_root=self._data_root, allow_data_outside=self._allow_data_outside
                )
                task = open_task(spec, options)
                if spec.config.get("class") is not None:
                    _ = task.rows  # a class task may load its data lazily
                splits = list(task.splits)
            except (AssayError, OSError, RuntimeError, ValueError) as error:
                if not self._is_unreachable(spec, error):
                    raise
                absent = (
                    error if isinstance(error, AssayError) else DatasetError(str(error).partition("\n")[0])
                )
                if spec.custom_dataset is None and spec.dataset_path is not None:
                    self._unavailable[str(spec.dataset_path)] = absent
                _report_unavailable(spec, absent, findings)
            else:
                opened += [task] if _check_splits(spec, splits, task, findings) else []
        return opened[0] if opened else None

    def _is_unreachable(self, spec: TaskSpec, error: BaseException) -> bool:
        """Return whether the data are missing because the hub is unreachable; local files must exist."""
        if spec.dataset_path in _LOCAL_BUILDERS or self._is_local(str(spec.dataset_path)):
            return False
        texts = [f"{type(one).__name__} {one}".lower() for one in _iter_causes(error)]
        if any(phrase in text for text in texts for phrase in _UNREACHABLE_MESSAGES):
            return True
        offline = os.environ.get("HF_HUB_OFFLINE", "0") in ("1", "true", "ON", "YES", "TRUE", "yes")
        return offline and any(
            "datasetnotfounderror" in text or "filenotfounderror" in text for text in texts
        )

    def _is_local(self, dataset_path: str) -> bool:
        root = self._data_root or os.environ.get("ASSAY_DATA")
        folders = [Path(dataset_path)]
        if root:
            folders += [Path(root) / dataset_path, Path(root) / "bare" / dataset_path]
        return any(folder.is_dir() for folder in folders)


def _iter_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, including suppressed ones."""
    seen: BaseException | None = error
    for _ in range(8):
        if seen is None:
            return
        yield seen
        seen = seen.__cause__ or seen.__context__


def _report_unavailable(spec: TaskSpec, error: AssayError, findings: Findings) -> None:
    name = f" `{spec.dataset_path}`" if spec.dataset_path else ""
    findings.note(
        "not-checked",
        f"not checked: dataset{name} is not available",
        spec.place("dataset_path"),
        "set --data_root, or go online" if isinstance(error, DatasetError) else error.hint,
    )


def _check_splits(spec: TaskSpec, available: list[str], task: Task, findings: Findings) -> bool:
    """Check that every named split exists and that the evaluated split has documents."""
    if spec.config.get("class") is not None:
        return True
    own = spec.fewshot.split or spec.fewshot_split
    wanted = [("test_split", spec.test_split), ("validation_split", spec.validation_split)]
    wanted += [("training_split", spec.training_split), ("fewshot_split", own)]
    for key, name in wanted:
        if name is None or name in available:
            continue
        place = "fewshot_config.split" if key == "fewshot_split" and spec.fewshot.split else key
        needed = name == spec.evaluated_split or (key == "fewshot_split" and spec.num_fewshot)
        findings.add(
            "error" if needed else "warning",
            "split",
            f"the dataset has no split `{name}`",
            spec.place(place),
            f"it has: {', '.join(available)}",
        )
    if spec.evaluated_split not in available:
        return False
    if not hasattr(task.splits[str(spec.evaluated_split)], "__len__"):
        findings.note("not-checked", "not checked: the dataset is streamed", spec.place("dataset_kwargs"))
        return False
    if not len(task.splits[str(spec.evaluated_split)]):
        findings.error(
            "split", f"the split `{spec.evaluated_split}` has no documents", spec.place("test_split")
        )
        return False
    return True
