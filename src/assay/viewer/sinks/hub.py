"""The Hugging Face hub: results and samples as files of a dataset repository."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.core.errors import BadOption
from assay.core.parsing import parse_switch
from assay.store.runs import Run
from assay.viewer.lm_eval_files import write_files
from assay.viewer.sinks import SINKS
from assay.viewer.sinks.curves import package

__all__ = ["Hub"]


@SINKS.register("hub")
class Hub:
    """Pushes a finished run to a dataset repository: `--sink hub,repo=org/results`. The token is HF_TOKEN's."""

    def __init__(self, *, repo: str = "", private: bool | str = True, samples: bool | str = True) -> None:
        if "/" not in repo:
            raise BadOption(
                "the sink `hub` needs a repository", where="--sink", hint="--sink hub,repo=org/results"
            )
        self._hub = package("huggingface_hub")
        self._repo = repo
        self._private, self._samples = (
            parse_switch(value) if isinstance(value, str) else bool(value) for value in (private, samples)
        )

    def emit(self, event: str, facts: Mapping[str, Any]) -> None:
        if event != "run ended" or facts["state"] != "finished":
            return
        run = Run(Path(facts["folder"]))
        try:
            with tempfile.TemporaryDirectory() as place:
                write_files(run, place, samples=self._samples)
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
