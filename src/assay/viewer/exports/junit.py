"""JUnit XML, which every CI shows: a test case per document, or one per threshold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TextIO
from xml.sax.saxutils import escape, quoteattr

from assay.core.errors import BadOption, UnknownName
from assay.core.verdicts import Estimate
from assay.store.runs import Run
from assay.viewer.reasons import reason
from assay.viewer.tables import number

__all__ = ["Threshold", "attribute", "parse_threshold", "unmet", "write_junit", "write_thresholds"]

_LONGEST = 2_000
"""Characters of a prompt or an answer that are shown: a report is looked at, not processed."""

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """How good a task must be: `gsm8k:exact_match=0.8`."""

    task: str
    metric: str = ""
    """Empty: the first metric of the task."""

    value: float = 0.0


def parse_threshold(text: str, where: str = "--threshold") -> Threshold:
    """`TASK=VALUE` or `TASK:METRIC=VALUE`.

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
        raise BadOption(
            f"`{text}` is not a threshold", where=where, hint="TASK=VALUE or TASK:METRIC=VALUE"
        ) from None


def write_junit(run: Run, tasks: Sequence[str], stream: TextIO) -> None:
    """A suite per task, a case per document: wrong and unscored ones fail, those nobody answered are errors.

    A document is wrong when the first metric of the task gives it 0 and all others 0 or 1; a graded metric (BLEU, a
    perplexity) fails nobody.
    """
    stream.write('<?xml version="1.0" encoding="UTF-8"?>\n')
    stream.write(f"<testsuites name={attribute(run.id)}>\n")
    for task in tasks:
        _write_suite(run, task, stream)
    stream.write("</testsuites>\n")


def _write_suite(run: Run, task: str, stream: TextIO) -> None:
    judged = _main_metric(run, task)
    counts = {"tests": 0, "failures": 0, "errors": 0}
    for _, element, _, _ in _cases(run, task, judged):  # counted first: the counts stand before the cases
        counts["tests"] += 1
        counts["failures"] += element == "failure"
        counts["errors"] += element == "error"
    said = " ".join(f'{name}="{count}"' for name, count in counts.items())
    stream.write(f"  <testsuite name={attribute(task)} {said}>\n")
    for document, element, message, text in _cases(run, task, judged):
        head = f'    <testcase classname={attribute(task)} name="document {document}"'
        if not element:
            stream.write(f"{head}/>\n")
            continue
        stream.write(f"{head}>\n      <{element} message={attribute(message)}>{_text(text)}</{element}>\n")
        stream.write("    </testcase>\n")
    stream.write("  </testsuite>\n")


def _main_metric(run: Run, task: str) -> tuple[str, str] | None:
    """(filter, metric) that says right or wrong: the first of the task, if it only ever says 0 or 1."""
    first = next((estimate for estimate in run.estimates if estimate.task == task), None)
    if first is None:
        return None
    key = (first.pipeline, first.metric)
    binary = all(
        value in (0, 1)
        for pipeline, metric, _, kind, value in run.journal.verdicts(task)
        if (pipeline, metric) == key and kind == "score"
    )
    return key if binary and first.higher_is_better is not False else None


def _cases(run: Run, task: str, judged: tuple[str, str] | None) -> Iterator[tuple[int, str, str, str]]:
    """(document, element, message, text); no element for one that passed."""
    for record in run.records(task):
        document, outcome, why = record["document"], record["outcome"], record["why"].strip()
        because = f": {reason(why)}" if why else ""
        judged_at_all = any(verdict["kind"] != "unscored" for verdict in record["verdicts"])
        if outcome in ("open", "failed"):
            yield document, "error", f"not answered{because}", why
        elif outcome == "judge-failed":
            yield document, "error", f"not judged{because}", why
        elif not judged_at_all and outcome != "skipped":
            yield document, "failure", f"{outcome}{because}", why
        elif _is_wrong(record, judged):
            ending = "" if outcome == "scored" else f" ({outcome})"
            metric = judged[1] if judged else ""
            yield document, "failure", f"wrong by {metric}{ending}", _details(record, judged)
        else:
            yield document, "", "", ""


def _is_wrong(record: dict[str, Any], judged: tuple[str, str] | None) -> bool:
    return judged is not None and any(
        (verdict["filter"], verdict["metric"]) == judged
        and verdict["kind"] == "score"
        and verdict["value"] == 0
        for verdict in record["verdicts"]
    )


def _details(record: dict[str, Any], judged: tuple[str, str] | None) -> str:
    first = record["requests"][0] if record["requests"] else {}
    answer = record["answers"].get(judged[0]) if judged else None
    return "\n".join(
        [
            f"prompt: {str(first.get('prompt', ''))[:_LONGEST]}",
            f"response: {str(first.get('response', ''))[:_LONGEST]}",
            f"answer: {str(answer)[:_LONGEST]}",
            f"target: {str(record['target'])[:_LONGEST]}",
        ]
    )


# --- thresholds ----------------------------------------------------------------------------------------


def checked(run: Run, thresholds: Iterable[Threshold]) -> list[tuple[Threshold, Estimate, bool]]:
    """(threshold, the number it is held against, whether it is met).

    Raises:
        UnknownName: The run has no such number.
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
                f"the run has no number `{threshold.task}{':' if threshold.metric else ''}{threshold.metric}`",
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


def unmet(run: Run, thresholds: Iterable[Threshold]) -> list[str]:
    """What to say of each threshold that is not met."""
    return [_said(threshold, estimate) for threshold, estimate, met in checked(run, thresholds) if not met]


def _said(threshold: Threshold, estimate: Estimate) -> str:
    sign = "<=" if estimate.higher_is_better is False else ">="
    error = f" ± {number(estimate.stderr)}" if estimate.stderr is not None else ""
    return f"{estimate.task}: {estimate.metric} is {number(estimate.value)}{error}, not {sign} {threshold.value:g}"


def write_thresholds(run: Run, thresholds: Sequence[Threshold], stream: TextIO) -> None:
    """One test case per threshold: what a CI gate wants to see."""
    cases = checked(run, thresholds)
    failures = sum(not met for _, _, met in cases)
    stream.write('<?xml version="1.0" encoding="UTF-8"?>\n')
    stream.write(f"<testsuites name={attribute(run.id)}>\n")
    stream.write(f'  <testsuite name="thresholds" tests="{len(cases)}" failures="{failures}" errors="0">\n')
    for threshold, estimate, met in cases:
        name = f"{estimate.metric} ({estimate.pipeline})"
        head = f"    <testcase classname={attribute(estimate.task)} name={attribute(name)}"
        message = _said(threshold, estimate)
        stream.write(
            f"{head}/>\n"
            if met
            else f"{head}>\n      <failure message={attribute(message)}/>\n    </testcase>\n"
        )
    stream.write("  </testsuite>\n</testsuites>\n")


def attribute(text: str) -> str:
    """A text as the value of an XML attribute, quotes included."""
    return quoteattr(_xml(text))


def _text(text: str) -> str:
    return escape(_xml(text))


def _xml(text: str) -> str:
    """Characters XML cannot hold, written out."""
    return _NOT_XML.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
