"""Everything that judges one task, looked up and checked once: its pipelines and its metrics.

Knows nothing of datasets, prompts or models: the target and the choices are handed in. Errors raised by a
task's own code pass through; whoever calls decides what becomes of the document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from assay.core.errors import AssayError, BadTask, Problems
from assay.core.specs import Dialect, FilterStep, MetricSpec, TaskSpec
from assay.core.verdicts import Evidence, Score, Verdict
from assay.scoring.generations import Call, judge_text, takes_keywords
from assay.scoring.judges.jury import Jury, Seat
from assay.scoring.judges.spec import JudgeSpec, read_judge
from assay.scoring.likelihoods import judge_choices, judge_likelihood, judge_rolling
from assay.scoring.lmms_eval import judge_texts, plain_answers, reasoning_tags
from assay.scoring.metrics import METRICS, Metric
from assay.scoring.metrics.hub import HubMetric
from assay.scoring.pipelines import DEFAULT_PIPELINE, Pipeline, build_pipeline
from assay.stats.aggregations import AGGREGATIONS

__all__ = ["DEFAULT_METRICS", "MetricUse", "Scorer"]

DEFAULT_METRICS: Mapping[str, tuple[str, ...]] = {
    "loglikelihood": ("perplexity", "acc"),
    "loglikelihood_rolling": ("word_perplexity", "byte_perplexity", "bits_per_byte"),
    "multiple_choice": ("acc", "acc_norm"),
}
"""What a task without `metric_list` reports; every kind of generation reports `exact_match`."""


class MetricUse(NamedTuple):
    """How a task reports one metric."""

    aggregation: str | Callable[..., Any]
    higher_is_better: bool | None
    where: str


class Scorer:
    """Judges the documents of one task. Made by `Scorer.of`."""

    __slots__ = (
        "_calls",
        "_dialect",
        "_output_type",
        "_process",
        "_texts_only",
        "juries",
        "metrics",
        "pipelines",
        "runs_own_code",
    )

    def __init__(
        self,
        *,
        pipelines: tuple[Pipeline, ...],
        metrics: dict[str, MetricUse],
        calls: tuple[Call, ...],
        output_type: str,
        process_results: Callable[..., Any] | None,
        juries: tuple[Jury, ...] = (),
        dialect: Dialect = "lm_eval",
    ) -> None:
        self.juries = juries
        """The metrics that models judge; `seat` says which models."""
        self.pipelines = pipelines
        self.metrics = metrics
        self._calls = calls
        self._output_type = output_type
        self._process = process_results
        self._dialect = dialect
        self._texts_only = (
            dialect == "lm_eval"
            and process_results is None
            and bool(calls)
            and output_type not in ("multiple_choice", "loglikelihood", "loglikelihood_rolling")
        )
        """By far the most frequent kind of generation: its metrics are called with texts, and nothing else happens."""

        self.runs_own_code = process_results is not None or any(not _is_ours(call.function) for call in calls)
        """Whether code that is not ours judges: it is given copies, which it may change."""

    @classmethod
    def of(cls, spec: TaskSpec, *, tags: Any = None) -> Scorer:
        """Look up everything the task names. `tags` are the run's reasoning tags, where it says any.

        Raises:
            Problems: All names nobody registered and all arguments nothing takes, each with its place.
        """
        problems: list[AssayError] = []
        pipelines = []
        thoughts: tuple[tuple[str, str], ...] = ()
        try:
            thoughts = reasoning_tags(spec, tags)
        except AssayError as problem:
            problems.append(problem)
        strip_first = spec.auto_strip_thinking and not thoughts
        for pipeline in spec.pipelines or (DEFAULT_PIPELINE,):
            if strip_first:
                pipeline = replace(pipeline, steps=(_STRIP, *pipeline.steps))
            try:
                pipelines.append(build_pipeline(pipeline, thoughts=thoughts))
            except Problems as several:
                problems += several.problems
            except AssayError as problem:
                problems.append(problem)
        metrics: dict[str, MetricUse] = {}
        calls: dict[str, Call] = {}
        juries: dict[str, Jury] = {}
        for entry in _entries(spec):
            where = entry.where or spec.place("metric_list")
            try:
                if "judge" in entry.arguments:
                    juries[entry.name] = _jury(entry, spec, where)
                    use = _use(entry, None, where)
                    metrics[entry.name] = use._replace(higher_is_better=use.higher_is_better is not False)
                    continue
                known = _known(entry, spec, where)
                metrics[entry.name] = _use(entry, known, where)
                calls[entry.name] = _call(entry, known, spec, where)
            except AssayError as problem:
                problems.append(problem)
        if problems:
            raise Problems(problems)
        return cls(
            pipelines=tuple(pipelines),
            metrics=metrics,
            calls=tuple(calls.values()),
            output_type=spec.output_type,
            process_results=spec.process_results,
            juries=tuple(juries.values()),
            dialect=spec.dialect,
        )

    def seat(self, seats: Callable[[JudgeSpec], Sequence[Seat]]) -> None:
        """Give every jury its judges, and announce what they will report."""
        self.juries = tuple(jury.seated(seats(jury.spec)) for jury in self.juries)
        for jury in self.juries:
            for name in jury.metrics:
                self.metrics.setdefault(name, MetricUse("mean", True, jury.spec.where))

    def judge(
        self,
        *,
        fields: Mapping[str, Any],
        answers: Sequence[Any],
        target: Any,
        choices: Sequence[Any] | None,
        multiple_inputs: int = 0,
        multiple_targets: bool = False,
        question: Any = None,
    ) -> dict[str, Any]:
        """What each metric makes of one document.

        `answers` are the filtered values of its requests, in order: `(log-probability, is_greedy)`, a number for
        rolling tasks, a text for generation. `question` is the index `doc_to_text` gave, with `multiple_inputs`.
        """
        if self._texts_only:
            return judge_text(
                self._calls, answers, target, choices, several=multiple_targets, inherit=self._inherit
            )
        if self._dialect == "lmms_eval":
            if self._output_type in _STRIPPED:
                answers = plain_answers(answers)
            elif self._process is None:
                answers = [(-loss, greedy) for loss, greedy in answers]
        if self._process is not None:
            return dict(self._process(fields, answers if isinstance(answers, list) else list(answers)))
        match self._output_type:
            case "multiple_choice":
                gold = question if multiple_inputs else target
                return judge_choices(self.metrics, answers, gold, choices or (), several=multiple_targets)
            case "loglikelihood":
                return judge_likelihood(self.metrics, answers)
            case "loglikelihood_rolling":
                return judge_rolling(self.metrics, answers, target)
            case _ if self._dialect == "lmms_eval":
                return judge_texts(self._calls, answers, target, choices, several=multiple_targets)
            case _:
                return {}  # models judge it, and nothing else

    @property
    def only_metric(self) -> Call | None:
        """The metric of a task that compares texts by one metric of ours, called by keywords; None for all others."""
        plain = self._texts_only and not self.runs_own_code and not self.juries and len(self._calls) == 1
        return self._calls[0] if plain and self._calls[0].keywords else None

    def verdicts(self, document: int, pipeline: str, raw: Mapping[str, Any]) -> list[Verdict]:
        """Numbers become scores; everything else, NaN too, is kept as evidence for the aggregation."""
        found: list[Verdict] = []
        for metric, value in raw.items():
            number = value if type(value) is float else _number(value)
            if number is not None and number == number:
                found.append(Score(document=document, metric=metric, pipeline=pipeline, value=number))
            else:
                found.append(Evidence(document=document, metric=metric, pipeline=pipeline, value=value))
        return found

    def reports(self, metric: str) -> bool:
        """Whether a metric is summed up: in lmms-eval's dialect only those the task file names are."""
        return self._dialect == "lm_eval" or metric in self.metrics

    def use_of(self, metric: str) -> MetricUse:
        """How to report a metric, also one the task file does not name.

        A key from the dictionary a metric returned is reported as that metric; others by their mean.
        """
        use = self.metrics.get(metric)
        if use is not None:
            return use
        if self._process is None:
            for call in self._calls:  # a resumed run may not have judged anything yet
                if getattr(call.function, "__module__", "") not in _OURS:
                    return self.metrics[call.name]
        return MetricUse("mean", None, "")

    def _inherit(self, key: str, metric: str) -> None:
        self.metrics.setdefault(key, self.metrics[metric])


def _is_ours(function: Callable[..., Any]) -> bool:
    return str(getattr(function, "__module__", "")).startswith("assay.scoring.")


_STRIPPED = ("generate_until", "generate_visual_cot")
"""Whose answers lmms-eval strips of white space before it judges them."""

_STRIP = FilterStep(function="strip_thinking")

_OURS = frozenset(
    {
        "assay.scoring.metrics.anls",
        "assay.scoring.metrics.error_rates",
        "assay.scoring.metrics.exact_match",
        "assay.scoring.metrics.letters",
        "assay.scoring.metrics.pairs",
    }
)


def _entries(spec: TaskSpec) -> Sequence[MetricSpec]:
    if spec.metrics or spec.config.get("metric_list") is not None:
        return spec.metrics
    return [MetricSpec(metric=name) for name in DEFAULT_METRICS.get(spec.output_type, ("exact_match",))]


def _jury(entry: MetricSpec, spec: TaskSpec, where: str) -> Jury:
    if not spec.output_type.startswith("generate"):
        raise BadTask(
            f"a judge reads what a model wrote, and a {spec.output_type} task writes nothing",
            where=f"{where}.judge",
            hint="`output_type: generate_until`",
        )
    return Jury(read_judge(entry, where))


def _known(entry: MetricSpec, spec: TaskSpec, where: str) -> Metric | None:
    """The registered metric of this name. A task's own function or `process_results` does without one."""
    free = spec.process_results is not None or callable(entry.metric) or _wants_hub(entry)
    return METRICS.get(entry.name, where=where) if not free or entry.name in METRICS else None


def _use(entry: MetricSpec, known: Metric | None, where: str) -> MetricUse:
    aggregation = (
        entry.aggregation if entry.aggregation is not None else known.aggregation if known else "mean"
    )
    if isinstance(aggregation, str):
        AGGREGATIONS.get(aggregation, where=where)
    higher_is_better = entry.higher_is_better
    if higher_is_better is None and known is not None:
        higher_is_better = known.higher_is_better
    return MetricUse(aggregation, higher_is_better, where)


def _call(entry: MetricSpec, known: Metric | None, spec: TaskSpec, where: str) -> Call:
    arguments = {name: value for name, value in entry.arguments.items() if name != "hf_evaluate"}
    function: Callable[..., Any]
    if callable(entry.metric):
        function = entry.metric
    elif _wants_hub(entry) or known is None:
        function = HubMetric(entry.name)
    else:
        function = known.function
    called = spec.process_results is None and spec.output_type.startswith("generate")
    if called and isinstance(function, HubMetric):
        function.load(where=where)
    keywords = takes_keywords(function, arguments)
    if called and arguments and not keywords and takes_keywords(function, {}):
        names = ", ".join(f"`{name}`" for name in arguments)
        raise BadTask(f"the metric `{entry.name}` does not take all of {names}", where=where)
    return Call(entry.name, function, arguments, keywords)


def _wants_hub(entry: MetricSpec) -> bool:
    return entry.arguments.get("hf_evaluate") is True


def _number(value: Any) -> Any:
    """The value as a plain number, or None."""
    if isinstance(value, float):
        return float(value)  # NumPy's is one too
    if isinstance(value, int):
        return value
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a NumPy scalar
        plain = value.item()
        return plain if isinstance(plain, (float, int)) else None
    return None
