"""Count the calls that find out what a server supports, also those that are made after the plan.

The plan probes the servers that it needs. Other models are probed when they open or with their first requests: a judge that only
task code asks, a server that did not answer during planning, a batch API.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from assay.core.ports import Model, SupportsProbing
from assay.store.journal.journal import Journal

__all__ = ["ProbeCallRecorder", "count_probe_calls"]


def count_probe_calls(model: Model) -> int:
    """Return the number of probe calls that a model has made so far."""
    return int(model.seen.get("probe_calls", 0)) if isinstance(model, SupportsProbing) else 0


class ProbeCallRecorder:
    """Adds the probe calls of a run to the fact `probe_calls`; the model has an empty name, judges their own."""

    def __init__(self, journal: Journal, models: Mapping[str, Model]) -> None:
        self._journal = journal
        self._models = dict(models)
        self._recorded = {name: count_probe_calls(model) for name, model in models.items()}
        """The calls of each model in the journal, which were made in this process."""

        self._total: Counter[str] | None = None

    def add(self, name: str, model: Model) -> None:
        """Add a model that the plan does not know."""
        self._models.setdefault(name, model)

    async def record(self) -> None:
        """Write the calls since the last time, if there are any."""
        counts = {name: count_probe_calls(model) for name, model in self._models.items()}
        new = Counter(counts) - Counter(self._recorded)
        if new:
            self._recorded = counts
            if self._total is None:
                self._total = Counter(self._journal.read_facts().get("probe_calls", {}))
            self._total += new
            await asyncio.wrap_future(self._journal.set_facts({"probe_calls": dict(self._total)}))
