"""`python -m tools.oracle.record --harness lm_eval==0.4.13 --tasks gsm8k -o CORPUS`: record a corpus with the harness.

The harness is installed in an environment of its own and runs there; nothing of it is imported here.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tools.oracle.corpus import CorpusError, read_records, write_records
from tools.oracle.recording.job import RecordingJob

__all__ = ["main", "merge_shares", "record_corpus"]

_PROJECT = Path(__file__).parents[2]
_ENVIRONMENTS = _PROJECT / ".venv" / "foreign" / "environments"
_HARNESSES = ("lm_eval", "lmms_eval")
_TORCH = "torch==2.13.0"
_BASE_REQUIREMENTS = ("zstandard", "pillow")
_TASKS_CSV = ("task", "family", "output_type", "yaml_relpath", "num_fewshot", "uses_global_rng", "shard")
_SKIPPED_CSV = ("task", "reason", "detail")
_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command()
@click.option(
    "--harness",
    required=True,
    help="Package and version: `lm_eval==0.4.13` or `lmms_eval==0.7.3`, any version.",
)
@click.option("--tasks", default="", help="Task names and globs, separated by commas; `*` for all.")
@click.option(
    "--tasks_file", type=click.File(encoding="utf-8"), help="A file with a task name or glob per line."
)
@click.option("--groups", default="", help="Groups to record, separated by commas (lm_eval only).")
@click.option(
    "--variants",
    default="default",
    show_default=True,
    help="Prompt variants of lm_eval: default, fsN (N examples), chat, chat_mt_sys_fs3, sys_fs2; or `all`.",
)
@click.option("--documents", type=_FOLDER, help="Use documents and responses of this corpus.")
@click.option(
    "--data_root", "--data-root", type=_FOLDER, help="Use documents of the dataset repositories here."
)
@click.option("--written", type=_FOLDER, help="Use the hand-written documents of this folder.")
@click.option(
    "--include_path", type=_FOLDER, help="Record the task files of this folder instead of the harness's."
)
@click.option(
    "--metric_scripts", type=_FOLDER, help="Local copies of Hugging Face metric scripts, `NAME/NAME.py` each."
)
@click.option("--requirements", default="", help="Further packages for the environment, separated by commas.")
@click.option(
    "--environment",
    type=click.Path(path_type=Path),
    help="Folder of the virtual environment; created if missing.  [default: below .venv/foreign]",
)
@click.option("--limit", default=6, show_default=True, help="Documents to evaluate per task.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1), help="Number of processes.")
@click.option("--timeout", default=120, show_default=True, help="Time limit in seconds for one task.")
@click.option("--append", is_flag=True, help="Add to an existing corpus.")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The corpus folder.")
def main(
    harness: str,
    tasks: str,
    tasks_file: Any,
    groups: str,
    variants: str,
    documents: Path | None,
    data_root: Path | None,
    written: Path | None,
    include_path: Path | None,
    metric_scripts: Path | None,
    requirements: str,
    environment: Path | None,
    limit: int,
    jobs: int,
    timeout: int,
    append: bool,
    output: Path,
) -> None:
    """Record what a harness does with tasks: documents, requests, responses, metrics and results.

    Without --documents, --data_root and --written, documents are synthesized from the task files.
    """
    package = harness.partition("==")[0].replace("-", "_")
    if package not in _HARNESSES:
        raise click.BadParameter(f"`{package}` is not one of {', '.join(_HARNESSES)}", param_hint="--harness")
    names = _split(tasks) + ([line.strip() for line in tasks_file if line.strip()] if tasks_file else [])
    if not names:
        raise click.UsageError("pass --tasks or --tasks_file")
    if output.exists() and any(output.iterdir()) and not append:
        raise click.BadParameter(
            f"`{output}` is not empty; pass --append to add to it", param_hint="--output"
        )
    all_variants = ["default", "fs3", "chat", "chat_mt_sys_fs3", "sys_fs2"]
    job = RecordingJob(
        harness=package,
        output=str(output.resolve()),
        tasks=names,
        groups=_split(groups),
        variants=all_variants if variants == "all" else _split(variants),
        documents=str(documents.resolve()) if documents else "",
        data_root=str(data_root.resolve()) if data_root else "",
        written=str(written.resolve()) if written else "",
        include_path=str(include_path.resolve()) if include_path else "",
        metric_scripts=str(metric_scripts.resolve()) if metric_scripts else "",
        limit=limit,
        task_timeout_s=timeout,
    )
    python = _create_environment(harness, environment or _ENVIRONMENTS / harness, _split(requirements))
    recorded, skipped = record_corpus(job, python, jobs)
    click.echo(f"recorded {recorded} evaluations in {output}, skipped {skipped} tasks (see skipped.csv)")


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _create_environment(harness: str, folder: Path, requirements: Sequence[str]) -> Path:
    """Create a virtual environment with the harness, or use an existing one; return its interpreter."""
    python = folder / "bin" / "python"
    package, _, wanted = harness.partition("==")
    if not python.exists():
        click.echo(f"installing {harness} in {folder}", err=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "-q"]
        subprocess.run([*install, _TORCH], check=True)
        subprocess.run([*install, harness, *_BASE_REQUIREMENTS, *requirements], check=True)
    elif requirements:
        subprocess.run([str(python), "-m", "pip", "install", "-q", *requirements], check=True)
    script = f"from importlib.metadata import version; print(version({package!r}))"
    found = subprocess.run(
        [str(python), "-c", script], capture_output=True, text=True, check=False
    ).stdout.strip()
    if not found or (wanted and found != wanted):
        raise CorpusError(
            f"`{folder}` has {package} {found or 'not installed'}, not {wanted or 'any version'}"
        )
    return python


def record_corpus(job: RecordingJob, python: Path, jobs: int) -> tuple[int, int]:
    """Record a job in several processes and merge their files; return the numbers of records and skipped tasks."""
    output = Path(job.output)
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="assay-record-") as folder, ThreadPoolExecutor(jobs) as pool:
        shares = [replace(job, output=folder, share=share, shares=jobs) for share in range(jobs)]
        for code in pool.map(lambda share: _run_share(share, python), shares):
            if code:
                raise CorpusError(f"the recorder ended with exit code {code}")
        return merge_shares(Path(folder), output)


def _run_share(job: RecordingJob, python: Path) -> int:
    environment = {
        **os.environ,
        "PYTHONPATH": str(_PROJECT),
        "PYTHONHASHSEED": "0",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    log = Path(job.output) / f"log-{job.share:02}.txt"
    with log.open("w", encoding="utf-8") as file:
        completed = subprocess.run(
            [str(python), "-m", f"tools.oracle.recording.{job.harness}_recorder"],
            input=job.to_json(),
            text=True,
            stdout=file,
            stderr=file,
            env=environment,
            cwd=job.output,
            check=False,
        )
    if completed.returncode:
        click.echo(log.read_text("utf-8")[-3000:], err=True)
    return completed.returncode


def merge_shares(folder: Path, output: Path) -> tuple[int, int]:
    """Merge the files of all shares into a corpus; return the numbers of records and skipped tasks."""
    count = 0
    for prefix in ("tasks", "records"):
        records = list(read_records(folder, f"{prefix}-*.jsonl.zst"))
        if records:
            shard = len(list(output.glob(f"{prefix}-*.jsonl.zst")))
            write_records(output / f"{prefix}-{shard:02}.jsonl.zst", records)
            count += len(records)
            if prefix == "tasks":
                _append_rows(output / "tasks.csv", _TASKS_CSV, _index_tasks(records, f"tasks-{shard:02}"))
    for name in ("groups", "media"):
        added = list(read_records(folder, f"{name}-*.jsonl.zst"))
        if added:
            target = output / f"{name}.jsonl.zst"
            known = list(read_records(output, target.name))
            merged = {json.dumps(row.get("sha256") or row["group"]): row for row in [*known, *added]}
            write_records(target, merged.values())
            count += len(added) if name == "groups" else 0
    if (folder / "groups.json").exists():
        shutil.copyfile(folder / "groups.json", output / "groups.json")
    if (folder / "media").is_dir():
        shutil.copytree(folder / "media", output / "media", dirs_exist_ok=True)
    skipped = []
    for path in sorted(folder.glob("skipped-*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            skipped += list(csv.reader(file))
    _append_rows(output / "skipped.csv", _SKIPPED_CSV, skipped)
    return count, len(skipped)


def _index_tasks(records: Sequence[dict[str, Any]], shard: str) -> list[list[Any]]:
    return [
        [
            record["task"],
            record["yaml_relpath"].partition("/")[0],
            record["output_type"],
            record["yaml_relpath"],
            record["num_fewshot"],
            int(record["uses_global_rng"]),
            shard,
        ]
        for record in records
        if record["variant"] == "default"
    ]


def _append_rows(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([header, *rows] if is_new else rows)


if __name__ == "__main__":
    try:
        main(standalone_mode=False)
    except (CorpusError, subprocess.CalledProcessError) as problem:
        click.echo(f"error: {problem}", err=True)
        sys.exit(2)
    except click.ClickException as problem:
        problem.show()
        sys.exit(problem.exit_code)
    except click.Abort:
        sys.exit(130)
