"""Run a model class of another harness in the harness itself and through Assay, and compare results and responses.

Run it from the root of the clone, with the Python of an environment in which the harness and Assay are installed
(`pip install --no-deps -e .`):

    PYTHONPATH=. HARNESS_ENVIRONMENT/bin/python -m tools.oracle.bridges tests/parity/corpus/lm_eval \\
        --harness lm_eval --model hf --model_args pretrained=CHECKPOINT,device=cpu

The tasks are those of the installed harness. Their documents come from a corpus: each task gets a file that includes the
original one and names Parquet files as its dataset. Files that helpers open below `$HF_HOME` are written there; with
`--videos`, the recorded placeholders are replaced by the videos of a folder, in turn.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import math
import multiprocessing
import os
import runpy
import shutil
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import cycle, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import yaml

from tools.oracle.corpus import CorpusError, read_records

__all__ = ["compare_bridge", "write_tasks"]

_PATTERNS = {"lm_eval": "tasks-*.jsonl*", "lmms_eval": "records-*.jsonl*"}
_OUTPUT_TYPES = ("generate_until", "multiple_choice", "loglikelihood", "loglikelihood_rolling")
_SCORE_FLAGS = frozenset({"gold_sensitive", "score_varies"})
"""Flags of a record that describe its scores; the others are reasons not to compare it."""

_FILE_FEATURES = {
    "bytes": {"_type": "Value", "dtype": "binary"},
    "path": {"_type": "Value", "dtype": "string"},
}
_TOLERANCE = 1e-9
_VIDEO_SUFFIXES = frozenset({".avi", ".mkv", ".mov", ".mp4", ".webm"})


@click.command(name="bridges")
@click.argument("corpus", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--harness", type=click.Choice(list(_PATTERNS)), required=True, help="The installed harness.")
@click.option("--model", required=True, help="Name of one of its models.")
@click.option("--model_args", default="", help="Arguments of the model, KEY=VALUE,….")
@click.option("--gen_kwargs", default="max_gen_toks=8", show_default=True, help="Settings of both sides.")
@click.option("--count", default=24, show_default=True, help="Number of tasks, of as many families.")
@click.option("--limit", default=3, show_default=True, help="Documents of each task.")
@click.option("--modality", default="", help="lmms_eval: only tasks with these media, e.g. `image`.")
@click.option("--output_type", type=click.Choice(_OUTPUT_TYPES), help="Only tasks with this output type.")
@click.option("--exclude", default="", help="Tasks that the harness cannot evaluate, NAME,….")
@click.option(
    "--include_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Python file that registers the model.",
)
@click.option(
    "--videos",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="lmms_eval: folder of videos that tasks get for recorded placeholders.",
)
@click.option("--json", "output", type=click.Path(path_type=Path), help="Write both results to this file.")
def main(
    corpus: Path,
    harness: str,
    model: str,
    model_args: str,
    gen_kwargs: str,
    count: int,
    limit: int,
    modality: str,
    output_type: str | None,
    exclude: str,
    include_path: Path | None,
    videos: Path | None,
    output: Path | None,
) -> None:
    """Compare a model of a harness in the harness itself and through Assay."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    with TemporaryDirectory(prefix="assay-bridge-") as folder:
        _set_home(Path(folder) / "hf_home")
        output_types = (output_type,) if output_type else _OUTPUT_TYPES
        names = write_tasks(
            corpus,
            harness,
            Path(folder),
            count=count,
            modality=modality,
            output_types=output_types,
            exclude=exclude.split(","),
            videos=videos,
        )
        options = {"model_args": model_args, "gen_kwargs": gen_kwargs, "limit": limit}
        theirs, ours = compare_bridge(harness, model, names, Path(folder), options, include_path)
    differences = {name: list(_find_differences(theirs.get(name), ours.get(name))) for name in names}
    for name in names:
        click.echo(f"{name}: {'; '.join(differences[name][:3]) or 'identical'}")
    numbers = sum(len(result["numbers"]) for result in theirs.values())
    documents = sum(len(result["responses"]) for result in theirs.values())
    equal = sum(not found for found in differences.values())
    click.echo(f"identical {equal}/{len(names)} tasks, {numbers} numbers, responses to {documents} documents")
    if output is not None:
        output.write_text(
            json.dumps({"theirs": theirs, "ours": ours}, indent=1, default=str), encoding="utf-8"
        )
    if equal < len(names):
        raise SystemExit(1)


def _set_home(home: Path) -> None:
    """Give helpers an `HF_HOME` of their own; checkpoints still come from the usual cache."""
    before = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    os.environ.setdefault("HF_HUB_CACHE", str(before / "hub"))
    os.environ["HF_HOME"] = str(home)


def write_tasks(
    corpus: Path,
    harness: str,
    folder: Path,
    *,
    count: int,
    modality: str = "",
    output_types: Sequence[str] = _OUTPUT_TYPES,
    exclude: Sequence[str] = (),
    videos: Path | None = None,
) -> list[str]:
    """Write task files and datasets of recorded tasks, one per family; return the names of the tasks.

    The files of their documents are written below `HF_HOME`.
    """
    package = importlib.util.find_spec(harness)
    if package is None or package.origin is None:
        raise CorpusError(f"{harness} is not installed")
    root = Path(package.origin).parent / ("tasks" if harness == "lm_eval" else "")
    chosen = _choose_records(corpus, root, harness, modality, output_types, exclude)[:count]
    for record in chosen:
        _write_files(record, corpus / "media", videos)
        splits = _build_splits(record, harness, corpus)
        files = {}
        for split, rows in splits.items():
            path = folder / f"{record['task']}-{split}.parquet"
            rows.to_parquet(str(path))
            files[split] = str(path)
        config = {
            "include": str(root / record["yaml_relpath"]),
            "task": f"bridge_{record['task']}",
            "dataset_path": "parquet",
            "dataset_name": None,
            "dataset_kwargs": {"data_files": files},
            "tag": None,
        }
        if harness == "lmms_eval":
            del config["tag"]
        path = folder / f"bridge_{record['task']}.yaml"
        path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return [f"bridge_{record['task']}" for record in chosen]


def _write_files(record: Mapping[str, Any], media: Path, videos: Path | None) -> None:
    """Write the files that the task opens by path."""
    found = sorted(path for path in videos.iterdir() if path.suffix in _VIDEO_SUFFIXES) if videos else []
    turns = cycle(found)
    for name, source in sorted(_list_files(record).items()):
        path = Path(name.replace("$HF_HOME", os.environ["HF_HOME"]))
        if source == "<dir>":
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        is_video = Path(source).suffix in _VIDEO_SUFFIXES
        shutil.copyfile(next(turns) if found and is_video else media / source, path)


def _list_files(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the files that a task opens and the paths that it passes to the model, with what they contain."""
    visuals = [one for request in record["requests"] for one in request.get("visuals") or ()]
    passed = {one: f"tiny{Path(one).suffix}" for one in visuals if isinstance(one, str)}
    return {**passed, **(record.get("files") or {})}


def _choose_records(
    corpus: Path, root: Path, harness: str, modality: str, output_types: Sequence[str], exclude: Sequence[str]
) -> list[Mapping[str, Any]]:
    """Choose tasks of different families, each output type in turn."""
    families: set[str] = set()
    by_type: dict[str, list[Mapping[str, Any]]] = {kind: [] for kind in output_types}
    for record in read_records(corpus, _PATTERNS[harness]):
        family = record["yaml_relpath"].removeprefix("tasks/").partition("/")[0]
        is_wanted = record["task"] not in exclude and record["output_type"] in by_type
        if family not in families and is_wanted and _is_usable(record, modality, root):
            families.add(family)
            by_type[record["output_type"]].append(record)
    turns = zip_longest(*by_type.values())
    return [record for turn in turns for record in turn if record is not None]


def _is_usable(record: Mapping[str, Any], modality: str, root: Path) -> bool:
    """Whether the task uses `load_dataset`, neither samples nor guesses, and was recorded without remarks."""
    flags = {key for key, value in (record.get("flags") or {}).items() if value and key not in _SCORE_FLAGS}
    path = root / record["yaml_relpath"]
    source = path.read_text(encoding="utf-8")
    source += _read_included(source, path)
    return (
        record.get("variant", "default") == "default"
        and not record.get("uses_global_rng")
        and all(name.startswith("$HF_HOME/") for name in _list_files(record))
        and not any(
            name.startswith("$HF_HOME/snap/") for name in _list_files(record)
        )  # repositories on the Hub
        and {} not in (record.get("features_hf") or {}).values()  # Parquet has no empty structures
        and not record.get("skipped_metrics")
        and not flags
        and bool(record.get("results"))
        and not any(key in source for key in ("custom_dataset:", "class:"))  # they load datasets themselves
        and "do_sample: true" not in source.lower()  # answers depend on the state of torch's generator
        and not any("random." in _read(root / helper) for helper in record.get("helpers") or ())
        and (not modality or record.get("modality") == modality)
    )


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _read_included(source: str, path: Path) -> str:
    """Return the text of the file that a task file includes."""
    for line in source.splitlines():
        if line.startswith("include: "):
            included = path.parent / line.removeprefix("include: ").strip("\"' ")
            return _read(included)
    return ""


def _build_splits(record: Mapping[str, Any], harness: str, corpus: Path) -> Mapping[str, Any]:
    import datasets

    if harness == "lm_eval":
        from tools.oracle.lm_eval_values import decode_documents

        return {
            split: datasets.Dataset.from_list(decode_documents(rows))
            for split, rows in record["splits"].items()
        }
    from tools.oracle.lmms_eval_values import Media

    rows = Media(corpus).decode(record["docs"])
    described = dict(record["features_hf"])
    sounds = [name for name, kind in described.items() if {"array", "sampling_rate"} <= set(kind)]
    for name in sounds:
        described[name] = _FILE_FEATURES
        rows = [{**row, name: _encode_audio(row.get(name))} for row in rows]
    if not hasattr(datasets, "List"):
        described = _convert_lists(described)
    features = datasets.Features.from_dict(described)
    columns = {name: [row.get(name) for row in rows] for name in features}
    made = datasets.Dataset.from_dict(columns, features=features)
    for name in sounds:
        made = made.cast_column(name, datasets.Audio())
    return dict.fromkeys(record["splits"], made)


def _encode_audio(value: Any) -> Any:
    """Return recorded samples as a WAV file, as a column of type `Audio` keeps them."""
    if value is None:
        return None
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, value["array"], value["sampling_rate"], format="WAV", subtype="FLOAT")
    return {"bytes": file.getvalue(), "path": None}


def _convert_lists(described: Any) -> Any:
    """Return a description of features for versions of `datasets` before 4, which decode audio without torchcodec."""
    if isinstance(described, Mapping):
        if described.get("_type") == "List":
            return [_convert_lists(described["feature"])]
        return {key: _convert_lists(value) for key, value in described.items()}
    return described


def compare_bridge(
    harness: str,
    model: str,
    names: Sequence[str],
    folder: Path,
    options: Mapping[str, Any],
    include_path: Path | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Evaluate in the harness and in Assay; return the numbers and responses of each task, of both.

    `include_path` is a Python file that registers the model, for a model that is not part of the harness. The harness runs
    in a process of its own, because Assay replaces some of its modules.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        theirs = pool.submit(
            _evaluate_in_harness, harness, model, names, folder, options, include_path
        ).result()
    own = [] if include_path is None else [include_path]
    name = model if own else f"{harness}/{model}"
    return theirs, _evaluate_in_assay(name, names, [folder, *own], options)


def _evaluate_in_harness(
    harness: str,
    model: str,
    names: Sequence[str],
    folder: Path,
    options: Mapping[str, Any],
    include_path: Path | None,
) -> dict[str, Any]:
    if include_path is not None:
        runpy.run_path(str(include_path))
    tasks = importlib.import_module(f"{harness}.tasks")
    evaluator = importlib.import_module(f"{harness}.evaluator")
    more: dict[str, Any] = {"confirm_run_unsafe_code": True}
    prompted = (
        {"model_name": model} if harness == "lmms_eval" else {}
    )  # its tasks have prompts for some models
    manager = tasks.TaskManager(include_path=str(folder), include_defaults=False, **prompted)
    if harness == "lmms_eval":  # some aggregations write files
        more = {"cli_args": Namespace(output_path=str(folder / "submissions"), process_with_media=False)}
    results = evaluator.simple_evaluate(
        model=model,
        tasks=list(names),
        task_manager=manager,
        bootstrap_iters=0,
        log_samples=True,
        batch_size=1,
        **more,
        **options,
    )
    return {
        name: {
            "numbers": _select_numbers(results["results"][name]),
            "responses": _select_responses(results["samples"][name]),
        }
        for name in names
    }


def _evaluate_in_assay(
    model: str, names: Sequence[str], include_path: Sequence[Path], options: Mapping[str, Any]
) -> dict[str, Any]:
    import assay
    from assay.viewer.exports.lm_eval import build_results, iterate_samples

    run = assay.run(
        model=model,
        tasks=list(names),
        include_path=[str(path) for path in include_path],
        output_path=str(include_path[0] / "runs"),
        bootstrap_iters=0,
        batch_size=1,
        confirm_run_unsafe_code=True,
        no_cache=True,  # responses of the model, not of an earlier comparison
        **options,
    )
    results = build_results(run)["results"]
    return {
        name: {
            "numbers": _select_numbers(results[name]),
            "responses": _select_responses(list(iterate_samples(run, name))),
        }
        for name in names
    }


def _select_numbers(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of a task that have a value. Standard errors of lmms_eval's own kinds are not in files of
    lm_eval's form."""
    values = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in results.items()}
    return {
        key: value
        for key, value in values.items()
        if "," in key
        and not key.partition(",")[0].endswith(("_stderr_clt", "_stderr_clustered"))
        and value not in ([], None, "N/A")
    }


def _select_responses(samples: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the filtered responses by document and number of the filter, as text."""
    found: dict[str, str] = {}
    counts: dict[Any, int] = {}
    for row in samples:
        number = counts[row["doc_id"]] = counts.get(row["doc_id"], 0) + 1
        found[f"{row['doc_id']}/{number}"] = _flatten(row["filtered_resps"]).strip()
    return found


def _flatten(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return _flatten(value[0]) if len(value) == 1 else f"[{', '.join(_flatten(item) for item in value)}]"
    return str(value)


def _find_differences(theirs: Any, ours: Any) -> Iterator[str]:
    if theirs is None or ours is None:
        yield "missing"
        return
    for key in theirs["numbers"] | ours["numbers"]:
        mine, other = ours["numbers"].get(key), theirs["numbers"].get(key)
        if not _is_equal(mine, other):
            yield f"{key} is {other}, in Assay {mine}"
    for key in theirs["responses"] | ours["responses"]:
        said, other = ours["responses"].get(key), theirs["responses"].get(key)
        if said != other:
            yield f"response {key} is {str(other)[:60]!r}, in Assay {str(said)[:60]!r}"


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return (math.isnan(one) and math.isnan(other)) or math.isclose(
            one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE
        )
    return one == other or str(one) == str(other)  # mappings may differ in the order of their keys


if __name__ == "__main__":
    main()
