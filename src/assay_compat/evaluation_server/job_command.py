"""The process of a job: one `lmms-eval` command, as a run of Assay.

    python -m assay_compat.evaluation_server.job_command FILES FOLDER REPLICAS ARGUMENTS…

ARGUMENTS are those of `lmms-eval`. The process runs them, writes the results under lmms-eval's names below FOLDER, and the
paths of these files to FILES, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from assay_compat.commands import lmms_eval
from assay_compat.commands.translation import Translation, run_translated

__all__ = ["main"]


def main() -> NoReturn:
    """Run the job that the arguments of this process describe."""
    files, folder, replicas, *sys.argv[1:] = sys.argv[1:]

    def translate(arguments: Sequence[str]) -> Translation:
        translated = lmms_eval.translate_command(arguments)
        if "log_samples" not in translated.given:
            translated.arguments += ["--log_samples", "false"]  # the default of lmms-eval
        if int(replicas) > 1:
            translated.arguments += ["--replicas", replicas]
        return translated

    def write_results(run: Any) -> None:
        lmms_eval.print_table(run)
        results, samples = lmms_eval.write_results(run, Path(folder))
        found = {"results": str(results), "samples": [str(file) for file in samples]}
        Path(files).write_text(json.dumps({results.parent.name: found}), "utf-8")

    run_translated(translate, write_results)


if __name__ == "__main__":
    main()
