"""The verdict of `assay same`: one sentence, and the evidence for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InvalidOption, UserError
from assay.stats.comparisons.equivalence import Channel, EquivalenceResult, decide_equivalence
from assay.store.documents.run_score_tables import RunScoreTables
from assay.store.runs.run import Run
from assay.viewer.comparison.clusters import read_clusters
from assay.viewer.comparison.pairing import pair_documents
from assay.viewer.comparison.variants import find_families
from assay.viewer.same_model.discrepancies import (
    CHANNELS,
    find_first_difference,
    is_sampled,
    list_repeats,
    measure_between,
    measure_noise,
    read_score,
)

__all__ = ["SameModelOptions", "SameModelVerdict", "judge_same_model"]

Record = Mapping[str, Any]
Floats = NDArray[np.float64]

MEAN_SCORE = "mean scores"
"""The channel of the difference of the mean scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SameModelOptions:
    """What counts as the same model, and how often the verdict may be wrong."""

    delta: float = 0.02
    """The largest difference of the mean scores, and the largest mean discrepancy per document, that count as the same model."""

    alpha: float = 0.05
    """Largest probability of `different` for the same model."""

    beta: float = 0.05
    """Largest probability of `same` for different models."""

    tasks: Sequence[str] = ()
    """Only these tasks; empty: all that both runs have."""

    only_end: bool = False
    """Decide on all documents together, instead of one after the other until there is a verdict."""

    seed: int = 0
    """Seed of the order in which the documents are looked at."""

    def __post_init__(self) -> None:
        for name, high in (("delta", 1.0), ("alpha", 0.5), ("beta", 0.5)):
            value = getattr(self, name)
            if not 0 < value < high:
                raise InvalidOption(
                    f"{value:g} is not between 0 and {high:g}", where=f"--{name}", hint="for example 0.02"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """The mean length of the generated answers, in characters."""

    first: float
    second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SameModelVerdict:
    """The verdict on two runs, with its evidence."""

    first: str
    second: str
    first_model: str
    second_model: str
    reference: str
    """The second run of the first server, whose discrepancy to the first is noise; empty: none."""

    second_reference: str
    """The second run of the second server; empty: none."""

    noise: str
    """What the noise was estimated from: `repeats`, `reference run`, `reference runs` (of both servers), or empty: none is
    subtracted."""

    documents: int
    clusters: int | None
    """The clusters of documents that were looked at one after the other; None if no document belongs to one."""

    result: EquivalenceResult
    flips: tuple[int, int] | None
    """Documents whose score is higher in the second run, and lower; None without scores."""

    differing_texts: int
    texts: int
    positions: tuple[int, ...]
    """Positions of the first difference (in tokens) of the texts that differ, ascending."""

    lengths: Lengths | None
    endings: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Finish reason -> number of answers in the first and in the second run."""

    largest_shift: float | None = None
    """The largest difference of a log probability, in nats."""

    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0: same, 3: different, 5: not enough evidence."""
        return {"same": 0, "different": 3, "undecided": 5}[self.result.decision]

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        result = self.result
        total = (
            f"{self.documents} documents"
            if self.clusters is None
            else f"{self.clusters} clusters of documents"
        )
        unit = "documents" if self.clusters is None else "clusters"
        limit = f"{100 * result.delta:g} %"
        if result.decision == "same":
            return (
                f"Same: both serve the same model within {limit} (certain after {result.decided_after} of {total};"
                f" wrong with probability {100 * result.beta:g} % at most)"
            )
        if result.decision == "different":
            names = " and ".join(result.decided_by)
            return (
                f"Different: their {names} differ by more than {limit} (certain after {result.decided_after} of {total};"
                f" wrong with probability {100 * result.alpha:g} % at most)"
            )
        needed = [one.needed for one in result.channels]
        more = ""
        if all(
            number is not None or one.is_within(result.delta)
            for number, one in zip(needed, result.channels, strict=True)
        ):
            counts = [number for number in needed if number is not None]
            more = (
                f"; about {max(counts)} {unit} like these would show that they are the same" if counts else ""
            )
        return f"Not enough evidence: {total} show neither a difference above {limit} nor that there is none{more}"

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "verdict": self.result.decision,
            "sentence": self.sentence,
            "exit_code": self.exit_code,
            **asdict(self),
        }


@dataclass(slots=True)
class _Evidence:
    """What the documents of all tasks show; one entry per document (with each of its prompts) and channel."""

    keys: list[tuple[str, int]] = field(default_factory=list)
    """The task and the number of the document; the same for all prompts of a document."""

    clusters: dict[tuple[str, int], tuple[str, str]] = field(default_factory=dict)
    """The cluster of each document that belongs to one."""

    values: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in CHANNELS})
    """Discrepancies; the noise is subtracted."""

    upper: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in CHANNELS})
    """The same with no more noise subtracted than the models have for certain."""

    differences: list[float] = field(default_factory=list)
    """The mean score in the second run minus that in the first."""

    texts: int = 0
    positions: list[int] = field(default_factory=list)
    lengths: list[tuple[int, int]] = field(default_factory=list)
    endings: dict[str, list[int]] = field(default_factory=dict)
    shifts: list[float] = field(default_factory=list)
    has_noise: bool = False
    """Whether noise is subtracted from a document."""

    unreferenced: int = 0
    """Documents with sampled answers without repeats or a reference run."""

    other_prompts: int = 0
    unanswered: int = 0
    """Documents that a run did not answer or score."""


def judge_same_model(
    first: Run,
    second: Run,
    options: SameModelOptions,
    reference: Run | None = None,
    second_reference: Run | None = None,
) -> SameModelVerdict:
    """Judge whether two runs come from the same model. The references are second runs of the first and of the second server.

    Raises:
        UserError: The runs have no task or request in common, or a reference is not a run of its own.
    """
    _check_references(first, second, [one for one in (reference, second_reference) if one is not None])
    shared = [task for task in first.tasks if task in second.tasks]
    unknown = [task for task in options.tasks if task not in shared]
    if unknown or not shared:
        what = (
            f"the task `{unknown[0]}` is not in both runs" if unknown else "the runs have no task in common"
        )
        raise UserError(what, hint=f"both have: {', '.join(shared) or 'none'}")
    evidence = _Evidence()
    families = find_families(list(first.tasks), list(second.tasks))
    source = RunScoreTables(first)
    for task in list(options.tasks) or shared:
        key = _find_metric(first, task)
        family = families.get(task, task)
        runs = [run for run in (second, reference, second_reference) if run is not None]
        found = [{record["document"]: record for record in run.records(task)} for run in runs]
        for record in first.records(task):
            other, *again = (records.get(record["document"]) for records in found)
            if other is not None:
                _add_document(evidence, (family, record["document"]), key, record, other, again)
        evidence.clusters |= _read_clusters(source, task, family)
    if not evidence.keys:
        raise UserError(
            "the runs have no request in common: their prompts or settings differ",
            hint="evaluate the same tasks with the same options; only the model may differ",
        )
    units = _group_documents(evidence)
    return SameModelVerdict(
        first=first.id,
        second=second.id,
        first_model=first.model,
        second_model=second.model,
        reference="" if reference is None else reference.id,
        second_reference="" if second_reference is None else second_reference.id,
        noise=_name_noise(evidence, reference, second_reference),
        documents=len(set(evidence.keys)),
        clusters=len(units) if len(units) < len(set(evidence.keys)) else None,
        result=decide_equivalence(
            _build_channels(evidence, units, options.seed),
            delta=options.delta,
            alpha=options.alpha,
            beta=options.beta,
            only_end=options.only_end,
        ),
        flips=_count_flips(evidence, units),
        differing_texts=len(evidence.positions),
        texts=evidence.texts,
        positions=tuple(sorted(evidence.positions)),
        lengths=_average_lengths(evidence.lengths),
        endings={name: (counts[0], counts[1]) for name, counts in sorted(evidence.endings.items())},
        largest_shift=max(evidence.shifts, default=None),
        notes=tuple(_collect_notes(evidence, first, second)),
    )


def _check_references(first: Run, second: Run, references: Sequence[Run]) -> None:
    seen = [first.folder, second.folder]
    for one in references:
        if one.folder in seen:
            raise UserError(
                f"the run {one.id} is given twice",
                where="--reference",
                hint="a reference is another run of the same server, with the same options",
            )
        seen.append(one.folder)


Units = list[list[list[int]]]
"""The entries of each document of each cluster; a document without a cluster is one of its own."""


def _read_clusters(source: RunScoreTables, task: str, family: str) -> dict[tuple[str, int], tuple[str, str]]:
    """Return the cluster of each document of a task that has a `cluster_key`."""
    table = source.read_score_table(task)
    names = read_clusters(source, table, pair_documents(table, table), "")[0]
    if names is None:
        return {}
    return {
        (family, int(document)): (family, str(name))
        for document, name in zip(table.documents, names, strict=True)
        if name is not None
    }


def _group_documents(evidence: _Evidence) -> Units:
    """Return the entries by cluster and document."""
    units: dict[tuple[str, Any], dict[int, list[int]]] = {}
    for at, key in enumerate(evidence.keys):
        units.setdefault(evidence.clusters.get(key, key), {}).setdefault(key[1], []).append(at)
    return [list(documents.values()) for documents in units.values()]


def _average_units(values: Sequence[float], units: Units) -> tuple[Floats, Floats]:
    """Return the mean of each cluster, and its number of documents. Prompts of a document are averaged first."""
    means, counts = [], []
    for documents in units:
        found = [_average_known([values[at] for at in entries]) for entries in documents]
        means.append(_average_known(found))
        counts.append(sum(not math.isnan(one) for one in found))
    return np.array(means), np.array(counts, dtype=np.float64)


def _average_known(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def _build_channels(evidence: _Evidence, units: Units, seed: int) -> list[Channel]:
    """Return the channels in a random order of the documents, or of the clusters.

    Without noise, the mean discrepancy of the scores is at least the difference of the mean scores. With noise subtracted it is
    not (it is the mean of squared differences of probabilities if scores are 0 or 1), so the mean scores are a channel of their own.

    Raises:
        UserError: Nothing can be compared.
    """
    order = np.random.default_rng(seed).permutation(len(units))
    limits = (-1.0, 1.0) if evidence.has_noise else (0.0, 1.0)

    def build(name: str, values: Sequence[float], upper: Sequence[float] | None, *, signed: bool) -> Channel:
        means, counts = _average_units(values, units)
        return Channel(
            name=name,
            values=means[order],
            limits=(-1.0, 1.0) if signed else limits,
            upper=None if upper is None else _average_units(upper, units)[0][order],
            signed=signed,
            weights=counts[order] / counts.max() if counts.max() > 1 else None,
        )

    channels = [
        build(name, values, evidence.upper[name] if evidence.has_noise else None, signed=False)
        for name, values in evidence.values.items()
        if np.isfinite(values).any()
    ]
    if not channels:
        raise UserError(
            "sampled answers differ from one request to the next, so these runs show nothing",
            hint="repeat both runs with --repeats 2, pass a second run of each server with --reference, or use temperature 0",
        )
    if (evidence.has_noise or evidence.unreferenced) and np.isfinite(evidence.differences).any():
        channels.insert(0, build(MEAN_SCORE, evidence.differences, None, signed=True))
    return channels


def _name_noise(evidence: _Evidence, reference: Run | None, second_reference: Run | None) -> str:
    if not evidence.has_noise:
        return ""
    if reference is None:
        return "repeats"
    return "reference run" if second_reference is None else "reference runs"


def _count_flips(evidence: _Evidence, units: Units) -> tuple[int, int] | None:
    """Return how many documents have a higher and a lower score in the second run."""
    found = [
        _average_known([evidence.differences[at] for at in entries])
        for documents in units
        for entries in documents
    ]
    known = [one for one in found if not math.isnan(one)]
    return (sum(one > 0 for one in known), sum(one < 0 for one in known)) if known else None


def _find_metric(run: Run, task: str) -> tuple[str, str]:
    """Return the filter and the metric of the first estimate of a task."""
    for estimate in run.estimates:
        if estimate.task == task:
            return estimate.pipeline, estimate.metric
    return "", ""


def _add_document(
    evidence: _Evidence,
    document: tuple[str, int],
    key: tuple[str, str],
    record: Record,
    other: Record,
    again: Sequence[Record | None],
) -> None:
    """Add one document, unless its requests differ. `again`: the answers of the reference runs."""
    questions = _list_questions(record)
    if any(one is None or _list_questions(one) != questions for one in (other, *again)):
        evidence.other_prompts += 1
        return
    answers, others = list_repeats(record), list_repeats(other)
    between = measure_between(answers, others)
    scores = [read_score(one, key) for one in (record, other)]
    difference = math.nan
    if scores[0] and scores[1]:
        between["scores"] = _compare_scores(scores[0], scores[1])
        difference = _average_scores(other, again[1:], key) - _average_scores(record, again[:1], key)
    if not between:
        evidence.unanswered += 1
        return
    noise = [_measure_own_noise(record, again[:1], key), _measure_own_noise(other, again[1:], key)]
    if noise[0] is None and noise[1] is None and is_sampled(record):
        evidence.unreferenced += 1
        between = {name: value for name, value in between.items() if name == "likelihoods"}
    evidence.keys.append(document)
    evidence.differences.append(difference)
    for name in CHANNELS:
        subtracted, certain = _combine_noise(
            [one if one is None else one.get(name, math.nan) for one in noise]
        )
        evidence.values[name].append(between.get(name, math.nan) - subtracted)
        evidence.upper[name].append(between.get(name, math.nan) - certain)
    evidence.has_noise |= any(one is not None for one in noise)
    _add_details(evidence, answers[0], others[0])


def _measure_own_noise(
    record: Record, again: Sequence[Record | None], key: tuple[str, str]
) -> dict[str, float] | None:
    """Return the mean discrepancy of a model with itself, from repeats or else from its reference run; None if unknown."""
    answers, scores = list_repeats(record), read_score(record, key)
    if len(answers) > 1:
        noise = measure_noise(answers)
        if scores and len(scores) > 1:
            noise["scores"] = _compare_repeats(scores)
        return noise
    for one in again:
        if one is not None:
            noise = measure_between(answers, list_repeats(one))
            others = read_score(one, key)
            if scores and others:
                noise["scores"] = _compare_scores(scores, others)
            return noise
    return None


def _combine_noise(noise: Sequence[float | None]) -> tuple[float, float]:
    """Return what to subtract from a discrepancy to show that two models differ, and to show that they do not.

    With the noise of both models it is the mean; the rest is zero for the same model, and never negative. If that of only one is
    known, the same model has it twice, but another one may have none.

    >>> _combine_noise([0.2, 0.1]), _combine_noise([0.2, None]), _combine_noise([None, None])
    ((0.15000000000000002, 0.15000000000000002), (0.2, 0.1), (0.0, 0.0))
    """
    known = [one for one in noise if one is not None]
    return (math.fsum(known) / len(known), math.fsum(known) / 2) if known else (0.0, 0.0)


def _average_scores(record: Record, again: Sequence[Record | None], key: tuple[str, str]) -> float:
    """Return the mean score of all answers of a model."""
    scores = [score for one in (record, *again) if one is not None for score in read_score(one, key) or ()]
    return math.fsum(scores) / len(scores)


def _compare_scores(first: Sequence[float], second: Sequence[float]) -> float:
    return math.fsum(abs(one - other) for one in first for other in second) / (len(first) * len(second))


def _compare_repeats(scores: Sequence[float]) -> float:
    count = len(scores)
    return math.fsum(abs(one - other) for one in scores for other in scores) / (count * (count - 1))


def _list_questions(record: Record) -> list[tuple[Any, ...]]:
    """Return what was asked about a document: prompts, continuations, tools and settings."""
    return [
        (one["kind"], one["prompt"], one.get("continuation"), one.get("tools"), one.get("settings"))
        for one in record["requests"]
    ]


def _add_details(evidence: _Evidence, first: Sequence[Record], second: Sequence[Record]) -> None:
    for one, other in zip(first, second, strict=True):
        if one["kind"] != "generate":
            if one.get("logprob") is not None and other.get("logprob") is not None:
                shift = abs(float(one["logprob"]) - float(other["logprob"]))
                evidence.shifts += [shift] if math.isfinite(shift) else []
            continue
        if one.get("response") is None or other.get("response") is None:
            continue
        evidence.texts += 1
        position = find_first_difference(one, other)
        evidence.positions += [] if position is None else [position]
        evidence.lengths.append((len(one["response"]), len(other["response"])))
        for side, request in enumerate((one, other)):
            if request.get("finish"):
                evidence.endings.setdefault(str(request["finish"]), [0, 0])[side] += 1


def _average_lengths(lengths: Sequence[tuple[int, int]]) -> Lengths | None:
    if not lengths:
        return None
    return Lengths(
        first=sum(one for one, _ in lengths) / len(lengths),
        second=sum(other for _, other in lengths) / len(lengths),
    )


def _collect_notes(evidence: _Evidence, first: Run, second: Run) -> Iterator[str]:
    if evidence.other_prompts:
        yield f"{evidence.other_prompts} documents have other prompts or settings in one of the runs and are excluded"
    if evidence.unanswered:
        yield f"{evidence.unanswered} documents have no answer in one of the runs and are excluded"
    if evidence.unreferenced:
        yield (
            f"the answers to {evidence.unreferenced} documents are sampled: only their mean scores and log probabilities are"
            " compared; --repeats 2 or --reference shows how much a model differs from itself"
        )
    if any(run.facts.get("spec", {}).get("subset") for run in (first, second)):
        yield "the runs evaluated a weighted subset: its documents count equally here"
    if first.folder == second.folder:
        yield "both are the same run: it cannot differ from itself"
    for run in (first, second):
        if not run.finished:
            yield f"the run {run.id} is not finished"
