"""The dataset: here or not, with the splits the task names, and documents in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from assay.checks.findings import Findings, guarded
from assay.core.errors import AssayError, BadData
from assay.core.specs import TaskSpec
from assay.tasks.task import Rendering, Task, open_task

__all__ = ["DataCheck"]

_BUILDERS = ("json", "csv", "parquet", "arrow", "text", "imagefolder", "audiofolder", "videofolder")
_NOT_HERE = (
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
"""What the `datasets` library says when the hub cannot be asked."""


class DataCheck:
    """Opens the data of many tasks; a dataset that is not here is looked for once, not per task."""

    def __init__(self, data_root: str | None = None) -> None:
        self._data_root = data_root
        self._absent: dict[str, AssayError] = {}

    def open(self, spec: TaskSpec, findings: Findings) -> Task | None:
        """The task bound to its data, as far as that is here and has what the task names."""
        known = None if spec.custom_dataset else self._absent.get(str(spec.dataset_path))
        if known is not None:
            _not_checked(spec, known, findings)
            return None
        opened: list[Task] = []
        with guarded(findings, "data", spec):
            try:
                task = open_task(spec, Rendering(data_root=self._data_root))
                if spec.config.get("class") is not None:
                    _ = task.rows  # a class loads its data when it likes
                splits = list(task.splits)
            except (AssayError, OSError, RuntimeError, ValueError) as error:
                if not self._is_elsewhere(spec, error):
                    raise
                absent = error if isinstance(error, AssayError) else BadData(str(error).partition("\n")[0])
                if spec.custom_dataset is None and spec.dataset_path is not None:
                    self._absent[str(spec.dataset_path)] = absent
                _not_checked(spec, absent, findings)
            else:
                opened += [task] if _check_splits(spec, splits, task, findings) else []
        return opened[0] if opened else None

    def _is_elsewhere(self, spec: TaskSpec, error: BaseException) -> bool:
        """Whether data are missing because the hub cannot be asked; local files must be here."""
        if spec.dataset_path in _BUILDERS or self._is_local(str(spec.dataset_path)):
            return False
        texts = [f"{type(one).__name__} {one}".lower() for one in _causes(error)]
        if any(mark in text for text in texts for mark in _NOT_HERE):
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


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it came from, also where that is not to be shown."""
    seen: BaseException | None = error
    for _ in range(8):
        if seen is None:
            return
        yield seen
        seen = seen.__cause__ or seen.__context__


def _not_checked(spec: TaskSpec, error: AssayError, findings: Findings) -> None:
    name = f" `{spec.dataset_path}`" if spec.dataset_path else ""
    findings.note(
        "not-checked",
        f"not checked: the dataset{name} is not here",
        spec.place("dataset_path"),
        "give --data_root, or go online" if isinstance(error, BadData) else error.hint,
    )


def _check_splits(spec: TaskSpec, there: list[str], task: Task, findings: Findings) -> bool:
    """Every split that is named exists; the evaluated one has documents."""
    if spec.config.get("class") is not None:
        return True
    own = spec.fewshot.split or spec.fewshot_split
    wanted = [("test_split", spec.test_split), ("validation_split", spec.validation_split)]
    wanted += [("training_split", spec.training_split), ("fewshot_split", own)]
    for key, name in wanted:
        if name is None or name in there:
            continue
        place = "fewshot_config.split" if key == "fewshot_split" and spec.fewshot.split else key
        needed = name == spec.evaluated_split or (key == "fewshot_split" and spec.num_fewshot)
        findings.add(
            "error" if needed else "warning",
            "split",
            f"the dataset has no split `{name}`",
            spec.place(place),
            f"it has: {', '.join(there)}",
        )
    if spec.evaluated_split not in there:
        return False
    if not hasattr(task.splits[str(spec.evaluated_split)], "__len__"):
        findings.note("not-checked", "not checked: the documents are streamed", spec.place("dataset_kwargs"))
        return False
    if not len(task.splits[str(spec.evaluated_split)]):
        findings.error(
            "split", f"the split `{spec.evaluated_split}` has no documents", spec.place("test_split")
        )
        return False
    return True
