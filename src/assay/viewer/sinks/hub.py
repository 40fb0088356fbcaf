"""The sink `hub`: uploads results and samples to a dataset repository of the Hugging Face Hub."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.options.parsing import parse_bool
from assay.store.runs.run import Run
from assay.viewer.exports.lm_eval import write_lm_eval
from assay.viewer.sinks import SINKS
from assay.viewer.sinks.tracker_metrics import import_package

__all__ = ["HubSink"]


@SINKS.register("hub")
class HubSink:
    """Upload a finished run to a dataset repository: `--sink hub,repo=org/results`. Uses HF_TOKEN."""

    def __init__(self, *, repo: str = "", private: bool | str = True, samples: bool | str = True) -> None:
        if "/" not in repo:
            raise InvalidOption(
                "the sink `hub` needs a repository", where="--sink", hint="--sink hub,repo=org/results"
            )
        self._hub = import_package("huggingface_hub")
        self._repo = repo
        self._private, self._samples = (
            parse_bool(value) if isinstance(value, str) else bool(value) for value in (private, samples)
        )

    def emit(self, event: str, facts: Mapping[str, Any]) -> None:
        if event != "run ended" or facts["state"] != "finished":
            return
        run = Run(Path(facts["folder"]))
        try:
            with tempfile.TemporaryDirectory() as place:
                write_lm_eval(run, place, samples=self._samples)
                service = self._hub.HfApi()
                service.create_repo(self._repo, repo_type="dataset", private=self._private, exist_ok=True)
                service.upload_folder(
                    repo_id=self._repo,
                    repo_type="dataset",
                    folder_path=place,
                    path_in_repo=run.id,
                    commit_message=f"Results of {run.id}",
                )
        finally:
            run.close()
