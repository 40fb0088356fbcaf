"""Run folders of HELM (crfm-helm): `run_spec.json`, `scenario_state.json`, `per_instance_stats.json`, `stats.json`.

The runs of one model become one run with a task per run specification. A document is an instance: its requests are those of
all train trials (repeats with other few-shot examples) and references. Perturbed instances are tasks of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from assay.core.errors import DatasetError
from assay.core.records.requests import Generate, Request, RollingLikelihood, Settings
from assay.core.records.responses import Failure, Finish, LogProbability, Response, Usage
from assay.core.records.verdicts import Estimate, RepeatScores
from assay.engine.imports.input_files import (
    build_identity,
    expect_format,
    iterate_json_array,
    parse_count,
    parse_number,
    read_json,
)
from assay.engine.imports.prompts import build_prompt
from assay.store.runs.imported_runs import ImportedDocument, ImportedRun, ImportedTask

__all__ = ["detect", "read"]

_SPEC, _STATS = "run_spec.json", "stats.json"
_INSTANCES, _STATES = "per_instance_stats.json", "scenario_state.json"
_FILES = (_SPEC, _STATS, _INSTANCES, _STATES)

_BOOKKEEPING = (
    "num_",
    "training_",
    "inference_",
    "finish_reason_",
    "batch_size",
    "prompt_truncated",
    "predicted_index",
)
"""Starts of the names of statistics that are not scores."""

_LOWER_IS_BETTER = (
    "absolute_value_difference", "bbq_metric_", "bias_metric", "bits_per_byte", "cer", "distance", "ece_", "equalized_odds",
    "demographic_parity", "error_rate", "expected_max_toxicity", "max_toxicity_probability", "mer", "perplexity", "platt_ece_",
    "toxic_frac", "wer",
)  # fmt: skip
_HIGHER_IS_BETTER = (
    "accuracy", "bleu", "chr_f", "classification_", "exact_match", "f1", "final_number_exact_match", "ifeval_strict_accuracy", "math_equiv",
    "ndcg", "omni_math_accuracy", "pass", "prefix_exact_match", "quasi_", "rouge", "rr@", "test_avg", "chain_of_thought_correctness",
    "exact_set_match", "iou_set_match", "safety_score", "wildbench_score_rescaled",
)  # fmt: skip

_FINISH: Mapping[str, Finish] = {
    "length": "length",
    "stop": "stop",
    "endoftext": "stop",
    "content_filter": "refused",
}


def detect(path: Path) -> bool:
    """Whether a folder is a run folder of HELM, or contains run folders (a suite)."""
    return next(_find_folders(path), None) is not None


def read(path: Path) -> Iterator[ImportedRun]:
    """Read the run folders, one run per model.

    Raises:
        DatasetError: A file is damaged, or two folders of one model have the same name.
    """
    by_model: dict[str, dict[str, _RunFolder]] = {}
    for folder in _find_folders(path):
        found = _open_folder(folder)
        if found.task in by_model.setdefault(found.model, {}):
            other = by_model[found.model][found.task].folder
            raise DatasetError(
                f"two run folders contain `{found.task}` of {found.model}",
                where=f"{other} and {folder}",
                hint="pass the folder of one suite",
            )
        by_model[found.model][found.task] = found
    for model, folders in by_model.items():
        yield _build_run(model, list(folders.values()))


def _find_folders(path: Path) -> Iterator[Path]:
    """Yield the run folders at a path: itself, those of a suite, or those of `benchmark_output`."""
    place = path.parent if path.name in _FILES and path.is_file() else path
    if not place.is_dir():
        return
    if _is_run_folder(place):
        yield place
        return
    for depth in ("*", "*/*", "runs/*/*"):
        found = [folder for folder in sorted(place.glob(depth)) if folder.is_dir() and _is_run_folder(folder)]
        if found:
            yield from found
            return


def _is_run_folder(folder: Path) -> bool:
    return (folder / _SPEC).is_file() and ((folder / _STATS).is_file() or (folder / _STATES).is_file())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The instances of a run that are aggregated together."""

    split: str
    perturbation: str
    """Its name; empty for unperturbed instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunFolder:
    folder: Path
    model: str
    task: str
    spec: Mapping[str, Any]
    scores: Mapping[tuple[str, int, _Part], Mapping[str, float]] = field(default_factory=dict)
    """The statistics of each instance and train trial."""

    @property
    def adapter(self) -> Mapping[str, Any]:
        found = self.spec.get("adapter_spec")
        return found if isinstance(found, dict) else {}

    @property
    def has_documents(self) -> bool:
        return (self.folder / _STATES).is_file()


def _open_folder(folder: Path) -> _RunFolder:
    spec = read_json(folder / _SPEC)
    adapter = spec.get("adapter_spec") if isinstance(spec, dict) else None
    if not isinstance(adapter, dict) or not isinstance(spec.get("name"), str):
        raise DatasetError("the file is not a run specification of HELM", where=str(folder / _SPEC))
    return _RunFolder(
        folder=folder,
        model=str(adapter.get("model") or adapter.get("model_deployment") or "unknown model"),
        task=_remove_model(spec["name"]),
        spec=spec,
        scores=_read_instance_scores(folder / _INSTANCES),
    )


def _remove_model(name: str) -> str:
    """Return the name of a run without its model.

    >>> _remove_model("mmlu:subject=anatomy,model=openai_gpt2,data_augmentation=canonical")
    'mmlu:subject=anatomy,data_augmentation=canonical'
    """
    scenario, _, arguments = name.partition(":")
    kept = [
        word for word in arguments.split(",") if word and not word.startswith(("model=", "model_deployment="))
    ]
    return f"{scenario}:{','.join(kept)}" if kept else scenario


def _read_instance_scores(path: Path) -> dict[tuple[str, int, _Part], dict[str, float]]:
    found: dict[tuple[str, int, _Part], dict[str, float]] = {}
    for row in iterate_json_array(path) if path.is_file() else ():
        with expect_format("an entry has", path):
            stats = row["stats"]
            part = _Part(
                split=str(stats[0]["name"].get("split") or "") if stats else "",
                perturbation=_name_perturbation(row.get("perturbation")),
            )
            key = (str(row["instance_id"]), int(row.get("train_trial_index") or 0), part)
            values = {stat["name"]["name"]: parse_number(stat.get("mean")) for stat in stats}
        found[key] = {name: value for name, value in values.items() if value is not None}
    return found


def _name_perturbation(value: Any) -> str:
    return str(value.get("name") or "perturbed") if isinstance(value, dict) else ""


def _build_run(model: str, folders: Sequence[_RunFolder]) -> ImportedRun:
    tasks: dict[str, ImportedTask] = {}
    estimates: list[Estimate] = []
    for folder in folders:
        parts = _list_parts(folder)
        for part in parts:
            name = _name_task(folder.task, part, parts)
            tasks[name] = _build_task(folder, part, name)
            estimates += _read_estimates(folder, part, name)
    files = {
        f"{folder.task}/{file}": folder.folder / file
        for folder in folders
        for file in _FILES
        if (folder.folder / file).is_file()
    }
    deployments = {str(folder.adapter.get("model_deployment") or "") for folder in folders}
    return ImportedRun(
        program="helm",
        model=model,
        identity=build_identity("helm", model, files),
        tasks=tasks,
        estimates=estimates,
        spec={"model": "/".join(sorted(deployments)) or model},
        facts={"helm": {folder.task: dict(folder.spec) for folder in folders}},
    )


def _list_parts(folder: _RunFolder) -> list[_Part]:
    """Return the parts of a run, unperturbed ones first."""
    found = dict.fromkeys(part for _, _, part in folder.scores)
    if not found and folder.has_documents:
        found = dict.fromkeys(_find_part(state) for state in _read_states(folder))
    if not found:
        found = dict.fromkeys(
            _find_stat_part(stat) for stat in _read_stats(folder) if stat["name"]["name"] == "num_instances"
        )
    return sorted(found or [_Part(split="", perturbation="")], key=lambda part: part.perturbation != "")


def _name_task(task: str, part: _Part, parts: Sequence[_Part]) -> str:
    words = []
    if len({one.split for one in parts}) > 1:
        words.append(f"split={part.split}")
    if part.perturbation:
        words.append(f"perturbation={part.perturbation}")
    return f"{task}{',' if ':' in task else ':'}{','.join(words)}" if words else task


def _build_task(folder: _RunFolder, part: _Part, name: str) -> ImportedTask:
    adapter = folder.adapter
    scenario = folder.spec.get("scenario_spec")
    shots = adapter.get("max_train_instances")
    metrics = {metric for scores in folder.scores.values() for metric in scores}
    return ImportedTask(
        read_documents=partial(_read_documents, folder, part, name) if folder.has_documents else None,
        output_type="generate_until"
        if adapter.get("method") != "language_modeling"
        else "loglikelihood_rolling",
        n_shot=shots if isinstance(shots, int) else None,
        config={"helm": {"scenario_spec": scenario, "adapter_spec": dict(adapter)}},
        higher_is_better={
            metric: direction for metric in metrics if (direction := _find_direction(metric)) is not None
        },
    )


def _find_direction(metric: str) -> bool | None:
    if metric.startswith(_LOWER_IS_BETTER):
        return False
    return True if metric.startswith(_HIGHER_IS_BETTER) else None


def _is_score(metric: str) -> bool:
    return not metric.startswith(_BOOKKEEPING)


def _sort_metrics(metrics: Iterable[str]) -> list[str]:
    """Return the scores, those with a known direction first: the first metric is the one that is compared."""
    return sorted(filter(_is_score, metrics), key=lambda metric: _find_direction(metric) is None)


def _read_stats(folder: _RunFolder) -> list[dict[str, Any]]:
    path = folder.folder / _STATS
    if not path.is_file():
        return []
    found = []
    for stat in iterate_json_array(path):
        name = stat.get("name") if isinstance(stat, dict) else None
        if not isinstance(name, dict) or not isinstance(name.get("name"), str):
            raise DatasetError("an entry has no name", where=str(path))
        found.append(stat)
    return found


def _find_stat_part(stat: Mapping[str, Any]) -> _Part:
    name = stat["name"]
    return _Part(
        split=str(name.get("split") or ""), perturbation=_name_perturbation(name.get("perturbation"))
    )


def _read_estimates(folder: _RunFolder, part: _Part, task: str) -> list[Estimate]:
    """Return the aggregate scores of a part. Means over train trials are means over documents, because all have as many."""
    wanted: dict[str, float] = {}
    count = 0
    for stat in _read_stats(folder):
        name, value = stat["name"], parse_number(stat.get("mean"))
        perturbation = name.get("perturbation")
        computed_on = perturbation.get("computed_on") if isinstance(perturbation, dict) else "perturbed"
        if (
            value is None
            or name.get("sub_split")
            or computed_on != "perturbed"
            or _find_stat_part(stat) != part
        ):
            continue
        if name["name"] == "num_instances":
            count = int(value)
        elif _is_score(name["name"]):
            wanted[name["name"]] = value
    return [
        Estimate(
            task=task,
            metric=metric,
            pipeline="none",
            value=value,
            scored=count,
            higher_is_better=_find_direction(metric),
        )
        for metric, value in ((metric, wanted[metric]) for metric in _sort_metrics(wanted))
    ]


def _read_states(folder: _RunFolder) -> Iterator[dict[str, Any]]:
    path = folder.folder / _STATES
    for state in iterate_json_array(path, "request_states"):
        if not isinstance(state, dict) or not isinstance(state.get("instance"), dict):
            raise DatasetError("a request state has no instance", where=str(path))
        yield state


def _find_part(state: Mapping[str, Any]) -> _Part:
    instance = state["instance"]
    return _Part(
        split=str(instance.get("split") or ""), perturbation=_name_perturbation(instance.get("perturbation"))
    )


def _read_documents(folder: _RunFolder, part: _Part, task: str) -> Iterator[ImportedDocument]:
    """Yield the instances of a part. Train trials follow each other in the file, so several trials are collected first."""
    states = (state for state in _read_states(folder) if _find_part(state) == part)
    groups: Iterable[list[dict[str, Any]]]
    if _count_trials(folder) > 1:
        collected: dict[str, list[dict[str, Any]]] = {}
        for state in states:
            collected.setdefault(str(state["instance"].get("id")), []).append(state)
        groups = collected.values()
    else:
        groups = (
            list(some) for _, some in groupby(states, key=lambda state: str(state["instance"].get("id")))
        )
    for index, group in enumerate(groups):
        with expect_format(f"instance {group[0]['instance'].get('id')} has", folder.folder / _STATES):
            yield _build_document(folder, part, task, index, group)


def _count_trials(folder: _RunFolder) -> int:
    counts = [folder.adapter.get(key) for key in ("num_train_trials", "num_trials")]
    return max([1, *(count for count in counts if isinstance(count, int))])


def _build_document(
    folder: _RunFolder, part: _Part, task: str, index: int, states: Sequence[Mapping[str, Any]]
) -> ImportedDocument:
    instance = states[0]["instance"]
    requests: list[Request] = []
    outcomes: list[Response | Failure | None] = []
    answers: list[Any] = []
    for state in states:
        scores = folder.scores.get((str(instance.get("id")), _get_trial(state), part), {})
        for request, outcome in _build_requests(task, index, state, scores):
            requests.append(request)
            outcomes.append(outcome)
            answers.append(_find_answer(state, outcome))
    trials = sorted({_get_trial(state) for state in states})
    by_trial = [folder.scores.get((str(instance.get("id")), trial, part), {}) for trial in trials]
    metrics = _sort_metrics(by_trial[0])
    columns = {
        metric: tuple(scores[metric] for scores in by_trial)
        for metric in metrics
        if all(metric in one for one in by_trial)
    }
    several = len(trials) > 1
    return ImportedDocument(
        index=index,
        fields=_build_fields(instance),
        target=_find_target(instance),
        requests=requests,
        outcomes=outcomes,
        answers={"none": answers},
        scores={("none", metric): sum(values) / len(values) for metric, values in columns.items()},
        repeats=[
            RepeatScores(
                document=index, pipeline="none", answers=_number(answers, len(trials)), scores=columns
            )
        ]
        if several and columns
        else (),
    )


def _get_trial(state: Mapping[str, Any]) -> int:
    return int(state.get("train_trial_index") or 0)


def _number(answers: Sequence[Any], trials: int) -> tuple[int, ...]:
    """Number the answers of the trials; equal ones have the same number. Trials with several requests count as different."""
    if len(answers) != trials:
        return tuple(range(trials))
    known: dict[str, int] = {}
    return tuple(known.setdefault(str(answer), len(known)) for answer in answers)


def _build_fields(instance: Mapping[str, Any]) -> dict[str, Any]:
    kept = {
        key: value
        for key, value in instance.items()
        if key not in ("input", "references", "split", "perturbation")
    }
    return {
        "input": _get_content(instance.get("input")),
        "references": [
            {"output": _get_content(one.get("output")), "tags": one.get("tags") or []}
            for one in instance.get("references") or ()
        ],
        **kept,
    }


def _get_content(value: Any) -> Any:
    """Return the text of an input or output; older files store the text itself, and media are kept as they are."""
    if isinstance(value, dict) and set(value) == {"text"}:
        return value["text"]
    return value


def _find_target(instance: Mapping[str, Any]) -> Any:
    correct = [
        _get_content(one.get("output"))
        for one in instance.get("references") or ()
        if "correct" in (one.get("tags") or ())
    ]
    return correct[0] if len(correct) == 1 else correct


def _build_requests(
    task: str, index: int, state: Mapping[str, Any], scores: Mapping[str, float]
) -> Iterator[tuple[Request, Response | Failure | None]]:
    """Yield the requests of a state, one per completion, with their outcomes."""
    request, result = state["request"], state.get("result")
    place: dict[str, Any] = {"task": task, "document": index, "index": int(state.get("reference_index") or 0)}
    prompt = build_prompt(request.get("messages") or request.get("prompt"))
    settings = Settings(_build_settings(request))
    is_likelihood = bool(request.get("echo_prompt")) and not request.get("max_tokens")
    completions = list(result.get("completions") or ()) if isinstance(result, dict) else []
    count = max(1, len(completions))
    for number in range(count):
        repeat = _get_trial(state) * count + number
        built: Request
        if is_likelihood:
            built = RollingLikelihood(**place, repeat=repeat, prompt=prompt)
        else:
            built = Generate(**place, repeat=repeat, prompt=prompt, settings=settings)
        completion = completions[number] if number < len(completions) else None
        yield built, _build_outcome(built, result, completion, scores)


def _build_outcome(
    request: Request, result: Any, completion: Any, scores: Mapping[str, float]
) -> Response | Failure | None:
    if not isinstance(result, dict):
        return None
    if not result.get("success", True) or completion is None:
        why = str(result.get("error") or "the request failed")
        return Failure(request_id=request.id, kind="model error", message=why)
    if isinstance(request, Generate):
        value: str | LogProbability = str(completion.get("text") or "")
    else:
        total = parse_number(completion.get("logprob"))
        if total is None:
            return None
        value = LogProbability(total)
    reason = completion.get("finish_reason")
    thinking = completion.get("thinking")
    tokens = parse_count(scores.get("num_prompt_tokens")), parse_count(scores.get("num_output_tokens"))
    return Response(
        request_id=request.id,
        value=value,
        finish=_FINISH.get(str(reason.get("reason")), "") if isinstance(reason, dict) else "",
        usage=Usage(tokens[0], tokens[1] or 0) if tokens[0] is not None else None,
        seconds=parse_number(result.get("request_time")),
        reasoning=str(thinking.get("text") or "") if isinstance(thinking, dict) else None,
    )


def _build_settings(request: Mapping[str, Any]) -> dict[str, Any]:
    names = {
        "temperature": "temperature", "max_tokens": "max_gen_toks", "stop_sequences": "until", "top_p": "top_p",
        "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty", "random": "seed",
    }  # fmt: skip
    return {ours: request[theirs] for theirs, ours in names.items() if request.get(theirs) is not None}


def _find_answer(state: Mapping[str, Any], outcome: Response | Failure | None) -> Any:
    """Return the answer: the text of the choice that a letter stands for, as HELM maps it."""
    if not isinstance(outcome, Response):
        return ""
    if isinstance(outcome.value, LogProbability):
        return outcome.value.total
    mapping = state.get("output_mapping")
    text = outcome.value.strip()
    return mapping.get(text, text) if isinstance(mapping, dict) else text
