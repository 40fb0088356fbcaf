"""JUnit XML for CI systems: a test case per document, or one per threshold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TextIO
from xml.sax.saxutils import escape, quoteattr

from assay.core.errors import InvalidOption, UnknownName
from assay.core.records.verdicts import Estimate
from assay.store.runs.run import Run
from assay.viewer.documents.failure_reasons import summarise_reason
from assay.viewer.number_format import format_number

__all__ = [
    "Threshold",
    "describe_unmet_thresholds",
    "parse_threshold",
    "quote_attribute",
    "write_junit",
    "write_thresholds",
]

_MAX_TEXT = 2_000
"""The number of characters of a prompt or an answer in a report."""

_INVALID_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """The score that a task must reach: `gsm8k:exact_match=0.8`."""

    task: str
    metric: str = ""
    """Empty: the first metric of the task."""

    value: float = 0.0


def parse_threshold(text: str, where: str = "--threshold") -> Threshold:
    """Parse `TASK=VALUE` or `TASK:METRIC=VALUE`.

    >>> parse_threshold("gsm8k:exact_match=0.8")
    Threshold(task='gsm8k', metric='exact_match', value=0.8)
    """
    name, equals, value = text.rpartition("=")
    task, _, metric = name.partition(":")
    try:
        if not equals or not task:
            raise ValueError
        return Threshold(task=task, metric=metric, value=float(value))
    except ValueError:
        raise InvalidOption(
            f"invalid threshold `{text}`", where=where, hint="use TASK=VALUE or TASK:METRIC=VALUE"
        ) from None


def write_junit(run: Run, tasks: Sequence[str], stream: TextIO) -> None:
    """Write a suite per task and a case per document: wrong and unscored documents fail, unanswered ones are errors.

    A document is wrong if the first metric of the task is 0 and takes only the values 0 and 1. Graded metrics (BLEU,
    perplexity) fail no document.
    """
    stream.write('<?xml version="1.0" encoding="UTF-8"?>\n')
    stream.write(f"<testsuites name={quote_attribute(run.id)}>\n")
    for task in tasks:
        _write_suite(run, task, stream)
    stream.write("</testsuites>\n")


def _write_suite(run: Run, task: str, stream: TextIO) -> None:
    binary_metric = _find_binary_metric(run, task)
    counts = {"tests": 0, "failures": 0, "errors": 0}
    for _, element, _, _ in _iterate_cases(
        run, task, binary_metric
    ):  # the counts precede the cases in the file
        counts["tests"] += 1
        counts["failures"] += element == "failure"
        counts["errors"] += element == "error"
    attributes = " ".join(f'{name}="{count}"' for name, count in counts.items())
    stream.write(f"  <testsuite name={quote_attribute(task)} {attributes}>\n")
    for document, element, message, text in _iterate_cases(run, task, binary_metric):
        head = f'    <testcase classname={quote_attribute(task)} name="document {document}"'
        if not element:
            stream.write(f"{head}/>\n")
            continue
        stream.write(
            f"{head}>\n      <{element} message={quote_attribute(message)}>{_escape_text(text)}</{element}>\n"
        )
        stream.write("    </testcase>\n")
    stream.write("  </testsuite>\n")


def _find_binary_metric(run: Run, task: str) -> tuple[str, str] | None:
    """Return the (filter, metric) of the first estimate if it takes only the values 0 and 1."""
    first = next((estimate for estimate in run.estimates if estimate.task == task), None)
    if first is None:
        return None
    key = (first.pipeline, first.metric)
    binary = all(
        value in (0, 1)
        for pipeline, metric, _, kind, value in run.journal.read_verdicts(task)
        if (pipeline, metric) == key and kind == "score"
    )
    return key if binary and first.higher_is_better is not False else None


def _iterate_cases(
    run: Run, task: str, binary_metric: tuple[str, str] | None
) -> Iterator[tuple[int, str, str, str]]:
    """Yield (document, element, message, text); the element is empty for a passed document."""
    for record in run.records(task):
        document, outcome, why = record["document"], record["outcome"], record["why"].strip()
        because = f": {summarise_reason(why)}" if why else ""
        judged_at_all = any(verdict["kind"] != "unscored" for verdict in record["verdicts"])
        if outcome in ("open", "failed"):
            yield document, "error", f"not answered{because}", why
        elif outcome == "judge-failed":
            yield document, "error", f"judge failed{because}", why
        elif not judged_at_all and outcome != "skipped":
            yield document, "failure", f"{outcome}{because}", why
        elif _is_wrong(record, binary_metric):
            ending = "" if outcome == "scored" else f" ({outcome})"
            metric = binary_metric[1] if binary_metric else ""
            yield document, "failure", f"wrong by {metric}{ending}", _format_details(record, binary_metric)
        else:
            yield document, "", "", ""


def _is_wrong(record: dict[str, Any], binary_metric: tuple[str, str] | None) -> bool:
    return binary_metric is not None and any(
        (verdict["filter"], verdict["metric"]) == binary_metric
        and verdict["kind"] == "score"
        and verdict["value"] == 0
        for verdict in record["verdicts"]
    )


def _format_details(record: dict[str, Any], binary_metric: tuple[str, str] | None) -> str:
    first = record["requests"][0] if record["requests"] else {}
    answer = record["answers"].get(binary_metric[0]) if binary_metric else None
    return "\n".join(
        [
            f"prompt: {str(first.get('prompt', ''))[:_MAX_TEXT]}",
            f"response: {str(first.get('response', ''))[:_MAX_TEXT]}",
            f"answer: {str(answer)[:_MAX_TEXT]}",
            f"target: {str(record['target'])[:_MAX_TEXT]}",
        ]
    )


# --- thresholds ----------------------------------------------------------------------------------------


def check_thresholds(run: Run, thresholds: Iterable[Threshold]) -> list[tuple[Threshold, Estimate, bool]]:
    """Return (threshold, estimate, whether the estimate meets it).

    Raises:
        UnknownName: The run has no such score.
    """
    found = []
    for threshold in thresholds:
        numbers = [
            estimate
            for estimate in run.estimates
            if estimate.task == threshold.task and threshold.metric in ("", estimate.metric)
        ]
        if not numbers:
            known = sorted({f"{estimate.task}:{estimate.metric}" for estimate in run.estimates})
            raise UnknownName(
                f"the run has no score `{threshold.task}{':' if threshold.metric else ''}{threshold.metric}`",
                where="--threshold",
                hint=f"it has: {', '.join(known)}",
            )
        found.append((threshold, numbers[0], _is_met(threshold, numbers[0])))
    return found


def _is_met(threshold: Threshold, estimate: Estimate) -> bool:
    if not isinstance(estimate.value, (int, float)):
        return False
    if estimate.higher_is_better is False:
        return estimate.value <= threshold.value
    return estimate.value >= threshold.value


def describe_unmet_thresholds(run: Run, thresholds: Iterable[Threshold]) -> list[str]:
    """Return a message for each threshold that is not met."""
    return [
        _describe_threshold(threshold, estimate)
        for threshold, estimate, met in check_thresholds(run, thresholds)
        if not met
    ]


def _describe_threshold(threshold: Threshold, estimate: Estimate) -> str:
    sign = "<=" if estimate.higher_is_better is False else ">="
    error = f" ± {format_number(estimate.stderr)}" if estimate.stderr is not None else ""
    return f"{estimate.task}: {estimate.metric} is {format_number(estimate.value)}{error}, required {sign} {threshold.value:g}"


def write_thresholds(run: Run, thresholds: Sequence[Threshold], stream: TextIO) -> None:
    """Write one test case per threshold."""
    cases = check_thresholds(run, thresholds)
    failures = sum(not met for _, _, met in cases)
    stream.write('<?xml version="1.0" encoding="UTF-8"?>\n')
    stream.write(f"<testsuites name={quote_attribute(run.id)}>\n")
    stream.write(f'  <testsuite name="thresholds" tests="{len(cases)}" failures="{failures}" errors="0">\n')
    for threshold, estimate, met in cases:
        name = f"{estimate.metric} ({estimate.pipeline})"
        head = f"    <testcase classname={quote_attribute(estimate.task)} name={quote_attribute(name)}"
        message = _describe_threshold(threshold, estimate)
        stream.write(
            f"{head}/>\n"
            if met
            else f"{head}>\n      <failure message={quote_attribute(message)}/>\n    </testcase>\n"
        )
    stream.write("  </testsuite>\n</testsuites>\n")


def quote_attribute(text: str) -> str:
    """Return a text as an XML attribute value, including quotes."""
    return quoteattr(_escape_invalid_characters(text))


def _escape_text(text: str) -> str:
    return escape(_escape_invalid_characters(text))


def _escape_invalid_characters(text: str) -> str:
    """Escape characters that XML cannot represent."""
    return _INVALID_IN_XML.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
