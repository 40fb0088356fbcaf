"""What a run costs while it goes on: a price for every response, and a stop before the limit is passed.

Before a request is asked, what it may cost is set aside: an estimate from the length of its text and its token limit,
corrected by how the estimates so far compared with what was charged. So the requests on their way cannot run past
`--max_cost` by more than that estimate errs.
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
"""What a request without a limit of its own is taken to write."""


def get_billing_name(model: Model, prices: PriceTable) -> str:
    """What the price tables call a model; empty where nobody charges for it, as for a server of one's own."""
    name = model.billed_as if isinstance(model, SupportsPricing) else ""
    return "" if name and is_self_hosted(name) and prices.find(name) is None else name


def open_ledger(spec: RunSpec, journal: Journal) -> CostLedger:
    """The ledger of a run; what earlier starts of it spent counts against its limit."""
    spent, requests = 0.0, 0
    if spec.max_cost is not None:
        spent, requests = journal.sum_costs()
    usual = spent / requests if requests else 0.0
    return CostLedger(load_prices(spec.prices), limit_usd=spec.max_cost, spent_usd=spent, usual_usd=usual)


def check_prices(spec: RunSpec, models: Sequence[Model]) -> None:
    """The price tables can be read; and a limit can only be kept where every price is known.

    Raises:
        InvalidOption: They cannot, or one is not.
    """
    prices = load_prices(spec.prices)
    for model in models if spec.max_cost is not None else ():
        name = get_billing_name(model, prices)
        if name and prices.find(name) is None:
            raise InvalidOption(
                f"no price is known for `{name}`, so its cost cannot be limited",
                where="--max_cost",
                hint="give a table that has it with --prices, or leave --max_cost out",
            )


def estimate_usage(request: Request) -> Usage:
    """The tokens a request may take, from the length of its text and its token limit."""
    letters = media = 0
    for message in request.prompt.messages:
        for part in message.parts:
            if isinstance(part, Text):
                letters += len(part.text)
            else:
                media += 1
    written = 1
    if isinstance(request, Generate):
        limit = request.settings.max_tokens
        written = DEFAULT_OUTPUT_TOKENS if limit is None else limit
    read = letters // CHARACTERS_PER_TOKEN + media * TOKENS_PER_MEDIUM + 1
    return Usage(read, written)


class CostLedger:
    """What one run has spent, on its model and on its judges, and what it may spend."""

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
        """What was paid so far, in earlier starts of the run, too."""

        self.is_exhausted = False
        """Whether something was not asked because of the limit."""

        self._usual_usd = usual_usd
        """What a request cost on average in earlier starts: until this one has its own experience."""

        self._reserved: dict[str, float] = {}
        self._guessed = self._charged = 0.0
        self._settled = asyncio.Event()

    def account(self, model: Model) -> CostAccount:
        """The account of the model, or of a judge."""
        name = get_billing_name(model, self._prices)
        batched = bool(getattr(model, "batched", False))
        return CostAccount(
            self, self._prices.find(name) if name else None, billed=bool(name), batched=batched
        )

    async def admit(self, price: Price, window: Sequence[Request], *, batched: bool) -> list[Request]:
        """Those of the requests, from the first on, that may be asked now; what they may cost is set aside.

        Where none fits, it waits for what is on its way: that may cost less than was set aside. None at all means that
        the limit is reached.
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
        room = (self.limit_usd or 0.0) - self.spent_usd - ratio * sum(self._reserved.values())
        admitted = []
        for request in window:
            guess = price.cost(replace(estimate_usage(request), batched=batched)) or 0.0
            guess = guess if self._guessed else max(guess, self._usual_usd)
            room -= guess * ratio
            if room < 0:
                break
            self._reserved[request.id] = guess
            admitted.append(request)
        return admitted

    def settle(self, request_id: str, cost_usd: float | None) -> None:
        """A request came to its end: what was set aside for it is free again, what it cost is spent."""
        guess = self._reserved.pop(request_id, None)
        if cost_usd is not None:
            self.spent_usd += cost_usd
            if guess is not None:
                self._guessed += guess
                self._charged += cost_usd
        self._settled.set()

    def build_error(self) -> BudgetExceeded:
        """The error a run ends with that may spend no more."""
        return BudgetExceeded(
            f"stopped: ${self.spent_usd:.4g} is spent, and the next request would pass --max_cost {self.limit_usd:g}",
            hint="everything answered is kept; repeat the command with a higher --max_cost to go on",
        )


class CostAccount:
    """One model's part of a ledger."""

    __slots__ = ("_batched", "_ledger", "_price", "billed")

    def __init__(
        self, ledger: CostLedger, price: Price | None, *, billed: bool, batched: bool = False
    ) -> None:
        self._ledger = ledger
        self._price = price
        self._batched = batched
        self.billed = billed
        """Whether somebody charges for the model."""

    async def admit(self, window: Sequence[Request]) -> list[Request]:
        """Those of the requests that may be asked; a model nobody charges for may be asked anything."""
        if self._price is None or self._ledger.limit_usd is None:
            return [] if self._ledger.is_exhausted else list(window)
        return await self._ledger.admit(self._price, window, batched=self._batched)

    def charge(self, outcome: Outcome) -> Outcome:
        """The outcome with what it cost."""
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
