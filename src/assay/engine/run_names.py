"""What a run is called and where it is kept: readable, and the same for the same work."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.core.fingerprints import digest_of
from assay.core.runspec import RunSpec
from assay.engine.version import assay_version

__all__ = ["output_folder", "run_id_of", "shape_of"]


def output_folder(spec: RunSpec) -> Path:
    """`--output_path` (a folder, or the folder of a `.json` file), else `./assay-runs`."""
    if spec.output_path is None:
        return Path("assay-runs")
    path = Path(spec.output_path).expanduser()
    return path.parent if path.suffix == ".json" else path


def shape_of(spec: RunSpec) -> dict[str, Any]:
    """The options that decide prompts, answers and scores; tasks and models count by what they are, not by name."""
    named = ("tasks", "model", "model_args", "judge", "judge_args")
    return {key: value for key, value in spec.shape().items() if key not in named}


def run_id_of(
    spec: RunSpec,
    model: str,
    identity: Mapping[str, str],
    tasks: Mapping[str, str],
    judges: Mapping[str, Mapping[str, str]],
) -> str:
    """Readable, and the same for the same work: re-issuing a command finds its run."""
    parts: dict[str, Any] = {
        "identity": dict(identity),
        "shape": shape_of(spec),
        "tasks": dict(tasks),
        "assay": assay_version(),  # a metric that was corrected must reach the numbers
    }
    if judges:
        parts["judges"] = {name: dict(facts) for name, facts in judges.items()}
    digest = digest_of(parts)
    words = [model, sorted(spec.tasks)[0].rstrip("/").removesuffix(".yaml")]
    slug = "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", word.rpartition("/")[2]).strip("-") for word in words)
    if len(spec.tasks) > 1:
        slug = f"{slug[:57]}-{len(spec.tasks) - 1}"
    return f"{slug[:60]}-{digest[:8]}"
