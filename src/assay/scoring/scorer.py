"""The scorer of one task: its filter pipelines, metrics and judge panels, looked up and checked once.

Knows nothing of datasets, prompts or models: the caller passes the target and the choices. Errors of task code propagate
to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from assay.core.errors import AssayError, ErrorGroup, TaskError
from assay.core.records.specs import Dialect, FilterStep, MetricSpec, OutputType, TaskSpec
from assay.core.records.verdicts import Evidence, Score, Verdict
from assay.scoring.generations import MetricCall, accepts_answer_and_target, accepts_keywords, judge_text
from assay.scoring.judges.panel import JudgePanel, PanelMember
from assay.scoring.judges.spec import JudgeSpec, parse_judge
from assay.scoring.likelihoods import is_pair_of_choices, judge_choices, judge_likelihood, judge_rolling
from assay.scoring.lmms_eval import judge_texts, resolve_reasoning_tags, strip_answers
from assay.scoring.metrics import METRICS, Metric
from assay.scoring.metrics.hf_evaluate import HfEvaluateMetric
from assay.scoring.pipelines import DEFAULT_PIPELINE, Pipeline, build_pipeline
from assay.stats.aggregations import AGGREGATIONS

__all__ = ["MetricReport", "Scorer", "is_unknown_aggregation_allowed"]


class MetricReport(NamedTuple):
    """How a task aggregates and reports one metric."""

    aggregation: str | Callable[..., Any]
    higher_is_better: bool | None
    where: str


class Scorer:
    """Scores the documents of one task. Created by `Scorer.from_spec`."""

    __slots__ = (
        "_calls",
        "_dialect",
        "_output_type",
        "_pair_metrics",
        "_process",
        "_texts_only",
        "metrics",
        "panels",
        "pipelines",
        "runs_task_code",
    )

    def __init__(
        self,
        *,
        pipelines: tuple[Pipeline, ...],
        metrics: dict[str, MetricReport],
        calls: tuple[MetricCall, ...],
        output_type: OutputType,
        process_results: Callable[..., Any] | None,
        panels: tuple[JudgePanel, ...] = (),
        dialect: Dialect = Dialect.LM_EVAL,
    ) -> None:
        self.panels = panels
        """The metrics that LLM judges score. `assign_judges` sets the judges."""
        self.pipelines = pipelines
        self.metrics = metrics
        self._calls = calls
        self._output_type = output_type
        self._process = process_results
        self._dialect = dialect
        self._texts_only = (
            not dialect.scores_all_answers
            and process_results is None
            and bool(calls)
            and output_type.generates_text
        )
        """Whether scoring only calls metrics with texts, which is the most frequent case."""

        self._pair_metrics = tuple(
            name for name in metrics if name in METRICS and is_pair_of_choices(METRICS.get(name))
        )
        self.runs_task_code = process_results is not None or any(
            not _is_builtin(call.function) for call in calls
        )
        """Whether task code scores documents. It gets copies, which it may change."""

    @classmethod
    def from_spec(cls, spec: TaskSpec, *, tags: Any = None) -> Scorer:
        """Look up the filters, metrics and judges of a task. `tags` are the reasoning tags of the run, if set.

        Raises:
            ErrorGroup: All unknown names and invalid arguments, each with its place.
        """
        problems: list[AssayError] = []
        pipelines = []
        removed_tags: tuple[tuple[str, str], ...] = ()
        try:
            removed_tags = resolve_reasoning_tags(spec, tags)
        except AssayError as problem:
            problems.append(problem)
        strip_first = spec.auto_strip_thinking and not removed_tags
        for pipeline in spec.pipelines or (DEFAULT_PIPELINE,):
            if strip_first:
                pipeline = replace(pipeline, steps=(_STRIP, *pipeline.steps))
            try:
                pipelines.append(
                    build_pipeline(
                        pipeline,
                        reasoning_tags=removed_tags,
                        removes_reasoning_last=spec.dialect.removes_reasoning_last,
                        dialect=spec.dialect,
                    )
                )
            except ErrorGroup as several:
                problems += several.errors
            except AssayError as problem:
                problems.append(problem)
        metrics: dict[str, MetricReport] = {}
        calls: dict[str, MetricCall] = {}
        panels: dict[str, JudgePanel] = {}
        for entry in _metric_specs(spec):
            where = entry.where or spec.place("metric_list")
            try:
                if "judge" in entry.arguments:
                    panels[entry.name] = _build_panel(entry, spec, where)
                    use = _build_report(entry, None, spec, where)
                    metrics[entry.name] = use._replace(higher_is_better=use.higher_is_better is not False)
                    continue
                known = _find_metric(entry, spec, where)
                metrics[entry.name] = _build_report(entry, known, spec, where)
                calls[entry.name] = _build_call(entry, known, spec, where)
            except AssayError as problem:
                problems.append(problem)
        if problems:
            raise ErrorGroup(problems)
        return cls(
            pipelines=tuple(pipelines),
            metrics=metrics,
            calls=tuple(calls.values()),
            output_type=spec.output_type,
            process_results=spec.process_results,
            panels=tuple(panels.values()),
            dialect=spec.dialect,
        )

    def assign_judges(self, find_members: Callable[[JudgeSpec], Sequence[PanelMember]]) -> None:
        """Assign judges to every panel and add the metrics that the panels report."""
        self.panels = tuple(panel.with_members(find_members(panel.spec)) for panel in self.panels)
        for panel in self.panels:
            for name in panel.metrics:
                self.metrics.setdefault(name, MetricReport("mean", True, panel.spec.where))

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
        """Return the result of each metric for one document.

        `answers` are the filtered values of its requests, in order: `(log-probability, is_greedy)`, a number for
        rolling tasks, or a text. `question` is the index that `doc_to_text` returns with `multiple_inputs`.
        """
        if self._texts_only:
            return judge_text(
                self._calls, answers, target, choices, several=multiple_targets, inherit=self._inherit
            )
        if self._dialect.answers_are_losses:
            if self._output_type.strips_answers:
                answers = strip_answers(answers)
            elif self._process is None:
                answers = [(-loss, greedy) for loss, greedy in answers]
        if self._process is not None:
            return dict(self._process(fields, answers if isinstance(answers, list) else list(answers)))
        match self._output_type:
            case OutputType.MULTIPLE_CHOICE:
                gold = question if multiple_inputs else target
                return judge_choices(
                    self.metrics,
                    answers,
                    gold,
                    choices or (),
                    several=multiple_targets,
                    pairs=self._pair_metrics,
                )
            case OutputType.LOGLIKELIHOOD:
                return judge_likelihood(self.metrics, answers)
            case OutputType.LOGLIKELIHOOD_ROLLING:
                return judge_rolling(self.metrics, answers, target)
            case _ if self._dialect.scores_all_answers:
                return judge_texts(self._calls, answers, target, choices, several=multiple_targets)
            case _:
                return {}  # only LLM judges score it

    @property
    def single_metric(self) -> MetricCall | None:
        """The metric of a task that scores texts with one built-in metric, or None."""
        plain = self._texts_only and not self.runs_task_code and not self.panels and len(self._calls) == 1
        return self._calls[0] if plain and self._calls[0].keywords else None

    def to_verdicts(self, document: int, pipeline: str, raw: Mapping[str, Any]) -> list[Verdict]:
        """Convert results to verdicts: numbers become scores, other values and NaN become evidence."""
        found: list[Verdict] = []
        for metric, value in raw.items():
            number = value if type(value) is float else _to_number(value)
            if number is not None and number == number:
                found.append(Score(document=document, metric=metric, pipeline=pipeline, value=number))
            else:
                found.append(Evidence(document=document, metric=metric, pipeline=pipeline, value=value))
        return found

    def is_reported(self, metric: str) -> bool:
        """Return whether a metric is aggregated and reported."""
        return self._dialect.reports_unlisted_metrics or metric in self.metrics

    def find_report(self, metric: str) -> MetricReport:
        """Return how to report a metric, including one that the task file does not name.

        A key of a mapping that a metric returned is reported like that metric. Other keys are reported as a mean.
        """
        use = self.metrics.get(metric)
        if use is not None:
            return use
        if self._process is None:
            for call in self._calls:  # a resumed run may not have scored anything yet
                if _may_return_mapping(call.function):
                    return self.metrics[call.name]
        return MetricReport("mean", None, "")

    def may_return_mapping(self, metric: str) -> bool:
        """Return whether a declared metric may report several scores under other names."""
        return self._process is None and any(
            call.name == metric and _may_return_mapping(call.function) for call in self._calls
        )

    def _inherit(self, key: str, metric: str) -> None:
        self.metrics.setdefault(key, self.metrics[metric])


def _may_return_mapping(function: Callable[..., Any]) -> bool:
    """Whether a metric may return several scores by name, which the built-in ones do not."""
    is_builtin = str(getattr(function, "__module__", "")).startswith("assay.scoring.metrics.")
    return isinstance(function, HfEvaluateMetric) or not is_builtin


def _is_builtin(function: Callable[..., Any]) -> bool:
    return str(getattr(function, "__module__", "")).startswith("assay.scoring.")


_STRIP = FilterStep(function="strip_thinking")


def _metric_specs(spec: TaskSpec) -> Sequence[MetricSpec]:
    if spec.metrics or spec.config.get("metric_list") is not None:
        return spec.metrics
    return [MetricSpec(metric=name) for name in spec.output_type.default_metrics]


def _build_panel(entry: MetricSpec, spec: TaskSpec, where: str) -> JudgePanel:
    if not spec.output_type.generates_text:
        raise TaskError(
            f"a judge needs generated text, which a {spec.output_type} task does not have",
            where=f"{where}.judge",
            hint="`output_type: generate_until`",
        )
    return JudgePanel(parse_judge(entry, where))


def _find_metric(entry: MetricSpec, spec: TaskSpec, where: str) -> Metric | None:
    """Return the registered metric of this name. None is allowed for task functions and `process_results`."""
    free = spec.process_results is not None or callable(entry.metric) or _uses_hf_evaluate(entry)
    return METRICS.get(entry.name, where=where) if not free or entry.name in METRICS else None


def _build_report(entry: MetricSpec, known: Metric | None, spec: TaskSpec, where: str) -> MetricReport:
    aggregation = (
        entry.aggregation if entry.aggregation is not None else known.aggregation if known else "mean"
    )
    if isinstance(aggregation, str):
        aggregation = spec.dialect.resolve_aggregation(aggregation)
        if aggregation in AGGREGATIONS or not is_unknown_aggregation_allowed(spec):
            AGGREGATIONS.get(aggregation, where=where)
    higher_is_better = entry.higher_is_better
    if higher_is_better is None and known is not None:
        higher_is_better = spec.dialect.default_direction(entry.name, known.higher_is_better)
    return MetricReport(aggregation, higher_is_better, where)


def is_unknown_aggregation_allowed(spec: TaskSpec) -> bool:
    """Whether a metric may name an aggregation that does not exist: the task may never report the metric.

    If it does, the summary fails for this metric, as any aggregation that raises an exception.
    """
    return spec.dialect.allows_unknown_aggregations and spec.process_results is not None


def _build_call(entry: MetricSpec, known: Metric | None, spec: TaskSpec, where: str) -> MetricCall:
    arguments = {name: value for name, value in entry.arguments.items() if name != "hf_evaluate"}
    function: Callable[..., Any]
    if callable(entry.metric):
        function = entry.metric
    elif _uses_hf_evaluate(entry) or known is None:
        function = HfEvaluateMetric(entry.name)
    else:
        function = known.function
    called = spec.process_results is None and spec.output_type.generates_text
    if called and isinstance(function, HfEvaluateMetric):
        function.load(where=where)
    keywords = accepts_keywords(function, arguments)
    if called and arguments and not keywords and accepts_keywords(function, {}):
        names = ", ".join(f"`{name}`" for name in arguments)
        raise TaskError(f"the metric `{entry.name}` does not accept all of {names}", where=where)
    separate = called and not keywords and accepts_answer_and_target(function)
    return MetricCall(entry.name, function, arguments, keywords, separate)


def _uses_hf_evaluate(entry: MetricSpec) -> bool:
    return entry.arguments.get("hf_evaluate") is True


def _to_number(value: Any) -> Any:
    """Return the value as a plain number, or None."""
    if isinstance(value, float):
        return float(value)  # also a NumPy float
    if isinstance(value, int):
        return value
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a NumPy scalar
        plain = value.item()
        return plain if isinstance(plain, (float, int)) else None
    return None
