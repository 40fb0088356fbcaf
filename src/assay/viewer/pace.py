"""How fast the answers of a run came in: counted by the second in the store, put into a hundred steps here."""

from __future__ import annotations

from assay.store.runs import Run
from assay.viewer.charts import Pace, Pause

__all__ = ["run_pace"]

_STEPS = 60
_PAUSE_S = 300.0
"""A silence longer than this (and than a tenth of the work) is a run that was stopped."""

_QUERY = """
SELECT cast(at * ? AS INTEGER) AS moment, count(*) FILTER (WHERE source = 'model'),
    count(*) FILTER (WHERE source = 'cache'), count(*) FILTER (WHERE source = 'judge')
FROM answered WHERE at > 0 GROUP BY moment ORDER BY moment
"""


def run_pace(run: Run, *, steps: int = _STEPS) -> Pace | None:
    """Responses over the time somebody was working; None where there are none."""
    seconds = float(run.facts.get("seconds") or 0.0)
    per_second = 20 if 0 < seconds < 30 else 1
    moments = list(run.journal.query(_QUERY, (per_second,)))
    if not moments:
        return None
    started = run.facts.get("started")
    first, last = moments[0][0] / per_second, (moments[-1][0] + 1) / per_second
    start = float(started) if isinstance(started, (int, float)) and 0 <= first - started < _PAUSE_S else first
    pauses, shifts, before = [], [], start
    lost = 0.0
    patience = max(_PAUSE_S, 0.1 * min(seconds or last - start, last - start))
    for moment, *_ in moments:
        time = moment / per_second
        if time - before > patience:
            pauses.append(Pause(at_s=before - start - lost, seconds=time - before))
            lost += time - before
        shifts.append(time - start - lost)
        before = time + 1 / per_second
    step = max((last - start - lost) / steps, 1 / per_second)
    count = int(max(shifts) / step) + 1
    asked, cached, judged = [0] * count, [0] * count, [0] * count
    for shift, (_, by_model, by_cache, by_judge) in zip(shifts, moments, strict=True):
        at = int(shift / step)
        asked[at] += by_model
        cached[at] += by_cache
        judged[at] += by_judge
    return Pace(step_s=step, asked=asked, cached=cached, judged=judged, pauses=pauses)
