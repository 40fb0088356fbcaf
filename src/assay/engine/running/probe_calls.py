"""Count the calls that find out what a server supports, also those that are made after the plan.

The plan probes the servers that it needs. Other models are probed when they open or with their first requests: a judge that only
task code asks, a server that did not answer during planning, a batch API.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from assay.core.ports import Model, SupportsProbing
from assay.core.records.responses import Usage
from assay.engine.running.cost_ledger import CostLedger, get_billing_name
from assay.models.prices import PriceTable
from assay.store.journal.journal import Journal

__all__ = ["ProbeCallRecorder", "compute_probe_cost", "count_probe_calls"]


def count_probe_calls(model: Model) -> int:
    """Return the number of probe calls that a model has made so far."""
    return int(model.seen.get("probe_calls", 0)) if isinstance(model, SupportsProbing) else 0


def compute_probe_cost(model: Model, prices: PriceTable) -> float:
    """Return the cost in dollars of the probe calls so far; 0 for a free model, or without usage in the replies."""
    name = get_billing_name(model, prices)
    price = prices.find(name) if name else None
    if price is None or not isinstance(model, SupportsProbing):
        return 0.0
    found = model.seen
    usage = Usage(int(found.get("probe_input_tokens", 0)), int(found.get("probe_output_tokens", 0)))
    return price.cost(usage) or 0.0


class ProbeCallRecorder:
    """Adds the probe calls of a run to the facts `probe_calls` and `probe_costs` and their cost to the ledger.

    The model has an empty name, judges their own.
    """

    def __init__(self, journal: Journal, models: Mapping[str, Model], ledger: CostLedger) -> None:
        self._journal = journal
        self._models = dict(models)
        self._ledger = ledger
        self._recorded = {name: count_probe_calls(model) for name, model in models.items()}
        """The calls of each model in the journal, which were made in this process."""

        self._charged = {name: compute_probe_cost(model, ledger.prices) for name, model in models.items()}
        """The cost of these calls, which the ledger read from the journal."""

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
            known = self._journal.read_facts()
            if self._total is None:
                self._total = Counter(known.get("probe_calls", {}))
            self._total += new
            costs = self._charge(known.get("probe_costs", {}))
            facts = {"probe_calls": dict(self._total), **({"probe_costs": costs} if costs else {})}
            await asyncio.wrap_future(self._journal.set_facts(facts))

    def _charge(self, known: Mapping[str, float]) -> dict[str, float]:
        """Charge the calls since the last time; return the cost of all calls of each model."""
        costs = dict(known)
        for name, model in self._models.items():
            cost = compute_probe_cost(model, self._ledger.prices)
            new = cost - self._charged.get(name, 0.0)
            self._charged[name] = cost
            if new > 0:
                self._ledger.spent_usd += new
                costs[name] = costs.get(name, 0.0) + new
        return costs
