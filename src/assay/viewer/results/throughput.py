"""Responses per time step of a run, counted by the second in the store; pauses between sessions are cut out."""

from __future__ import annotations

from assay.store.runs.run import Run
from assay.viewer.charts import Pause, Throughput

__all__ = ["measure_throughput"]

_STEPS = 60
_PAUSE_S = 300.0
"""A gap longer than this (and than a tenth of the working time) means that the run was stopped."""


def measure_throughput(run: Run, *, steps: int = _STEPS) -> Throughput | None:
    """Return the responses over the working time of a run, or None if it has none."""
    seconds = float(run.facts.get("seconds") or 0.0)
    per_second = 20 if 0 < seconds < 30 else 1
    moments = run.journal.count_responses_over_time(per_second)
    if not moments:
        return None
    started = run.facts.get("started")
    first, last = moments[0][0] / per_second, (moments[-1][0] + 1) / per_second
    start = float(started) if isinstance(started, (int, float)) and 0 <= first - started < _PAUSE_S else first
    pauses, shifts, before = [], [], start
    lost = 0.0
    min_pause_s = max(_PAUSE_S, 0.1 * min(seconds or last - start, last - start))
    for moment, *_ in moments:
        time = moment / per_second
        if time - before > min_pause_s:
            pauses.append(Pause(at_s=before - start - lost, seconds=time - before))
            lost += time - before
        shifts.append(time - start - lost)
        before = time + 1 / per_second
    step = max((last - start - lost) / steps, 1 / per_second)
    count = int(max(shifts) / step) + 1
    from_model, from_cache, from_judges = [0] * count, [0] * count, [0] * count
    for shift, (_, by_model, by_cache, by_judge) in zip(shifts, moments, strict=True):
        index = int(shift / step)
        from_model[index] += by_model
        from_cache[index] += by_cache
        from_judges[index] += by_judge
    return Throughput(step_s=step, model=from_model, cache=from_cache, judges=from_judges, pauses=pauses)
