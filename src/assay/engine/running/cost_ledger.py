"""Track what a run costs, and stop it before it exceeds `--max_cost`.

The ledger reserves the estimated cost of a request before it is sent: from the length of its text and its token limit, scaled by
the ratio of charged to estimated cost so far. So requests in flight exceed the limit only by the error of that estimate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from assay.core.errors import BudgetExceeded, InvalidOption
from assay.core.messages import Text
from assay.core.options.run_spec import RunSpec
from assay.core.ports import Model, SupportsPricing
from assay.core.requests import Generate, Request
from assay.core.responses import Failure, Outcome, Usage
from assay.models.prices import Price, PriceTable, is_self_hosted, load_prices
from assay.store.journal.journal import Journal

__all__ = ["CostAccount", "CostLedger", "check_prices", "estimate_usage", "get_billing_name", "open_ledger"]

CHARACTERS_PER_TOKEN = 4
TOKENS_PER_MEDIUM = 1_000
DEFAULT_OUTPUT_TOKENS = 256
"""Estimated output of a request without a token limit."""


def get_billing_name(model: Model, prices: PriceTable) -> str:
    """Return the name of a model in price tables; empty if it is free, such as a self-hosted server."""
    name = model.billed_as if isinstance(model, SupportsPricing) else ""
    return "" if name and is_self_hosted(name) and prices.find(name) is None else name


def open_ledger(spec: RunSpec, journal: Journal) -> CostLedger:
    """Open the ledger of a run; the cost of earlier starts counts against the limit."""
    spent, requests = 0.0, 0
    if spec.max_cost is not None:
        spent, requests = journal.sum_costs()
    usual = spent / requests if requests else 0.0
    return CostLedger(load_prices(spec.prices), limit_usd=spec.max_cost, spent_usd=spent, usual_usd=usual)


def check_prices(spec: RunSpec, models: Sequence[Model]) -> None:
    """Check that price tables can be read, and that every price is known if the cost is limited.

    Raises:
        InvalidOption: A table cannot be read, or a price is unknown.
    """
    prices = load_prices(spec.prices)
    for model in models if spec.max_cost is not None else ():
        name = get_billing_name(model, prices)
        if name and prices.find(name) is None:
            raise InvalidOption(
                f"the price of `{name}` is unknown, so its cost cannot be limited",
                where="--max_cost",
                hint="add it to a table for --prices, or omit --max_cost",
            )


def estimate_usage(request: Request) -> Usage:
    """Estimate the tokens of a request from the length of its text and its token limit."""
    characters = media = 0
    for message in request.prompt.messages:
        for part in message.parts:
            if isinstance(part, Text):
                characters += len(part.text)
            else:
                media += 1
    written = 1
    if isinstance(request, Generate):
        limit = request.settings.max_tokens
        written = DEFAULT_OUTPUT_TOKENS if limit is None else limit
    read = characters // CHARACTERS_PER_TOKEN + media * TOKENS_PER_MEDIUM + 1
    return Usage(read, written)


class CostLedger:
    """Tracks what a run spent on its model and judges, and what it may still spend."""

    def __init__(
        self,
        prices: PriceTable,
        *,
        limit_usd: float | None = None,
        spent_usd: float = 0.0,
        usual_usd: float = 0.0,
    ) -> None:
        self._prices = prices
        self.limit_usd = limit_usd
        self.spent_usd = spent_usd
        """The cost so far, including earlier starts of the run."""

        self.is_exhausted = False
        """Whether a request was refused because of the limit."""

        self._usual_usd = usual_usd
        """Average cost of a request in earlier starts, used until this start has responses."""

        self._reserved: dict[str, float] = {}
        self._guessed = self._charged = 0.0
        self._settled = asyncio.Event()

    def account(self, model: Model) -> CostAccount:
        """Open the account of the model or of a judge."""
        name = get_billing_name(model, self._prices)
        batched = bool(getattr(model, "batched", False))
        return CostAccount(
            self, self._prices.find(name) if name else None, billed=bool(name), batched=batched
        )

    async def admit(self, price: Price, window: Sequence[Request], *, batched: bool) -> list[Request]:
        """Return the first requests that fit into the budget, and reserve their estimated cost.

        If none fits, wait for requests in flight, which may cost less than reserved. An empty list means that the limit
        is reached.
        """
        while not self.is_exhausted:
            if admitted := self._reserve(price, window, batched):
                return admitted
            if not self._reserved:
                self.is_exhausted = True
                break
            self._settled.clear()
            await self._settled.wait()
        return []

    def _reserve(self, price: Price, window: Sequence[Request], batched: bool) -> list[Request]:
        ratio = self._charged / self._guessed if self._guessed else 1.0
        remaining = (self.limit_usd or 0.0) - self.spent_usd - ratio * sum(self._reserved.values())
        admitted = []
        for request in window:
            guess = price.cost(replace(estimate_usage(request), batched=batched)) or 0.0
            guess = guess if self._guessed else max(guess, self._usual_usd)
            remaining -= guess * ratio
            if remaining < 0:
                break
            self._reserved[request.id] = guess
            admitted.append(request)
        return admitted

    def settle(self, request_id: str, cost_usd: float | None) -> None:
        """Release the reservation of a request and add its cost."""
        guess = self._reserved.pop(request_id, None)
        if cost_usd is not None:
            self.spent_usd += cost_usd
            if guess is not None:
                self._guessed += guess
                self._charged += cost_usd
        self._settled.set()

    def build_error(self) -> BudgetExceeded:
        """Build the error of a run that reached its limit."""
        return BudgetExceeded(
            f"stopped: ${self.spent_usd:.4g} spent; the next request would exceed --max_cost {self.limit_usd:g}",
            hint="all responses are saved; repeat the command with a higher --max_cost to resume",
        )


class CostAccount:
    """The part of a ledger that belongs to one model."""

    __slots__ = ("_batched", "_ledger", "_price", "billed")

    def __init__(
        self, ledger: CostLedger, price: Price | None, *, billed: bool, batched: bool = False
    ) -> None:
        self._ledger = ledger
        self._price = price
        self._batched = batched
        self.billed = billed
        """Whether the model costs money."""

    async def admit(self, window: Sequence[Request]) -> list[Request]:
        """Return the requests that may be sent; for a free model, all of them."""
        if self._price is None or self._ledger.limit_usd is None:
            return [] if self._ledger.is_exhausted else list(window)
        return await self._ledger.admit(self._price, window, batched=self._batched)

    def charge(self, outcome: Outcome) -> Outcome:
        """Return the outcome with its cost."""
        if not self.billed:
            return outcome
        if isinstance(outcome, Failure) or outcome.usage is None:
            self._ledger.settle(outcome.request_id, None)
            return outcome
        usage = outcome.usage
        cost = usage.cost_usd
        if cost is None and self._price is not None:
            cost = self._price.cost(usage)
        self._ledger.settle(outcome.request_id, cost)
        return outcome if cost == usage.cost_usd else replace(outcome, usage=replace(usage, cost_usd=cost))
