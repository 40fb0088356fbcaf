"""Small datasets laid out as on the hub, and whole runs of built-in tasks on them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

import assay
from assay.core.records.requests import Request
from assay.testing import ScriptedModel

FOLDER = Path(assay.__file__ or "").parent / "builtin_tasks"


def helper(folder: str, name: str = "utils") -> ModuleType:
    """A helper file of a task folder, as a module."""
    path = FOLDER / folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"builtin_{folder}_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def picture(shade: int = 0, size: tuple[int, int] = (8, 6)) -> Image.Image:
    """A small picture; another shade is another picture."""
    return Image.new("RGB", size, (shade % 256, 100, 200))


def put_dataset(
    root: Path,
    name: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    split: str | tuple[str, ...] = "test",
    config: str = "",
    features: Mapping[str, Any],
) -> None:
    """A dataset under a folder that `data_root` can name: parquet files and a card that says which are which."""
    datasets = pytest.importorskip(
        "datasets", reason="small datasets are written with the `datasets` package"
    )
    folder = root / name / (config or "data")
    folder.mkdir(parents=True)
    table = datasets.Dataset.from_list([dict(row) for row in rows], features=datasets.Features(features))
    card = ["---", "configs:", f"- config_name: {config or 'default'}", "  data_files:"]
    for one in (split,) if isinstance(split, str) else split:
        table.to_parquet(str(folder / f"{one}-00000-of-00001.parquet"))
        card += [f"  - split: {one}", f"    path: {folder.name}/{one}-*.parquet"]
    (root / name / "README.md").write_text("\n".join([*card, "---", ""]), "utf-8")


def put_configs(
    root: Path, name: str, configs: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
) -> None:
    """A dataset with several configs and splits: config -> split -> rows; columns are what the rows hold."""
    pytest.importorskip("datasets", reason="datasets are read with the `datasets` package")
    import pyarrow
    import pyarrow.parquet

    card = ["---", "configs:"]
    for config, splits in configs.items():
        folder = root / name / config
        folder.mkdir(parents=True)
        card += [f"- config_name: {config}", "  data_files:"]
        for split, rows in splits.items():
            table = pyarrow.Table.from_pylist([dict(row) for row in rows])
            pyarrow.parquet.write_table(table, folder / f"{split}.parquet")
            card += [f"  - split: {split}", f"    path: {config}/{split}.parquet"]
    (root / name / "README.md").write_text("\n".join([*card, "---", ""]), "utf-8")


def columns(**kinds: str) -> dict[str, Any]:
    """Features by the names dataset cards use: `image`, `image[]`, `string[]`, `string`, `int64`."""
    datasets = pytest.importorskip(
        "datasets", reason="small datasets are written with the `datasets` package"
    )

    def feature(kind: str) -> Any:
        if kind.endswith("[]"):
            return datasets.Sequence(feature(kind.removesuffix("[]")))
        return datasets.Image() if kind == "image" else datasets.Value(kind)

    return {name: feature(kind) for name, kind in kinds.items()}


_shown: dict[str, list[Any]] = {}


def pictures(request: Request) -> list[Any]:
    """The pictures of a request as the model saw them: afterwards a run lets go of them."""
    return _shown[request.id]


def run_task(
    task: str, root: Path, answers: Callable[[Request], Any], **options: Any
) -> tuple[dict[str, Any], list[Request]]:
    """Run a built-in task on the datasets under a folder: its results, and what was asked in order."""

    def told(request: Request) -> Any:
        _shown[request.id] = [
            part.load().copy() for part in request.prompt.media if isinstance(part, assay.Image)
        ]
        return answers(request)

    model = ScriptedModel(told, window=1)
    run = assay.run(
        model=model,
        tasks=[task],
        data_root=str(root),
        output_path=str(root / "runs"),
        no_cache=True,
        **options,
    )
    return run.results[task], model.asked
