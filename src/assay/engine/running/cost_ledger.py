"""Track what a run costs, and stop it before it exceeds `--max_cost`.

The ledger reserves the highest possible cost of a request before it is sent: a token per byte of its text until responses show
the real ratio, and all tokens that the model may generate, reasoning included. If responses cost more than that, reservations
grow with them, also those of requests in flight; the fewer responses there are, the more the next may cost. The first request of
each model is sent alone, and so is each request without a known limit until one is answered. A request whose highest cost does not
fit is sent alone, if it fits at the highest ratio seen so far. So the limit is exceeded by one request at most.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from dataclasses import replace

from assay.core.errors import BudgetExceeded, InvalidOption
from assay.core.options.run_spec import RunSpec
from assay.core.ports import Model, SupportsOutputLimit, SupportsPricing
from assay.core.records.messages import Image, Text
from assay.core.records.requests import Generate, Likelihood, Request
from assay.core.records.responses import Failure, Outcome, Usage
from assay.core.records.tools import ToolCall, ToolResult
from assay.models.prices import Price, PriceTable, is_self_hosted, load_prices
from assay.store.journal.journal import Journal

__all__ = [
    "CostAccount",
    "CostLedger",
    "bound_usage",
    "check_prices",
    "find_output_limit",
    "get_billing_name",
    "open_ledger",
]

MESSAGE_OVERHEAD_TOKENS = 16
"""Tokens of a chat template for each message, tool call and definition."""

MAX_TOKENS_PER_IMAGE = 2_000
MAX_TOKENS_PER_RECORDING = 20_000
"""Tokens of an audio or a video file, until responses show the real number."""

UNKNOWN_LIMIT_MARGIN = 2.0
"""How much more than all answers before it an answer may cost if its length has no limit, or the server ignores it."""

FIRST_ANSWERS_MARGIN = 32.0
"""The same after one answer. It is divided by the number of answers, because few answers do not show how long others are."""

INPUT_MARGIN = 1.2
"""How much more tokens per byte a text may have than all texts before it."""


def get_billing_name(model: Model, prices: PriceTable) -> str:
    """Return the name of a model in price tables; empty if it is free, such as a self-hosted server."""
    name = model.billed_as if isinstance(model, SupportsPricing) else ""
    return "" if name and is_self_hosted(name) and prices.find(name) is None else name


def open_ledger(spec: RunSpec, journal: Journal) -> CostLedger:
    """Open the ledger of a run; the cost of earlier starts and of all probe calls counts against the limit."""
    spent, probed, requests = 0.0, 0.0, 0
    if spec.max_cost is not None:
        spent, requests = journal.sum_costs()
        probed = sum(journal.read_facts().get("probe_costs", {}).values())
    usual = spent / requests if requests else 0.0
    return CostLedger(
        load_prices(spec.prices), limit_usd=spec.max_cost, spent_usd=spent + probed, usual_usd=usual
    )


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


def bound_usage(request: Request, output_limit: int | None) -> Usage:
    """Return the largest number of tokens that a request can use: a byte-level tokenizer needs a token per byte at most."""
    size = MESSAGE_OVERHEAD_TOKENS * len(request.prompt.messages)
    for message in request.prompt.messages:
        for part in message.parts:
            match part:
                case Text(text=text):
                    size += _count_bytes(text)
                case ToolCall(name=name, arguments=arguments, id=call_id):
                    size += MESSAGE_OVERHEAD_TOKENS + _count_bytes(name, arguments, call_id)
                case ToolResult(content=content, call_id=call_id, name=name):
                    size += _count_bytes(content, call_id, name)
                case Image():
                    size += MAX_TOKENS_PER_IMAGE
                case _:
                    size += MAX_TOKENS_PER_RECORDING
    if isinstance(request, Likelihood):
        size += _count_bytes(request.continuation)
    if isinstance(request, Generate):
        size += _bound_definitions(request)
    return Usage(size, (output_limit or 0) if isinstance(request, Generate) else 1)


def _bound_definitions(request: Generate) -> int:
    """Return the largest number of tokens of the tools and the response format."""
    size = 0
    if request.tools is not None and not request.tools.syntax:  # else the prompt describes them
        for tool in request.tools.tools:
            size += MESSAGE_OVERHEAD_TOKENS + _count_bytes(json.dumps(tool.to_json(), ensure_ascii=False))
    if request.response_format is not None:
        definition = json.dumps(request.response_format.to_json(), ensure_ascii=False)
        size += MESSAGE_OVERHEAD_TOKENS + _count_bytes(definition)
    return size


def _count_bytes(*texts: str) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def find_output_limit(model: Model, request: Generate) -> int | None:
    """Return the largest number of tokens that a model generates for a request; None if unknown."""
    if isinstance(model, SupportsOutputLimit):
        return model.find_output_limit(request)
    return request.settings.max_tokens


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
        self.prices = prices
        self.limit_usd = limit_usd
        self.spent_usd = spent_usd
        """The cost so far, including earlier starts of the run."""

        self.is_exhausted = False
        """Whether a request was refused because of the limit."""

        self.usual_usd = usual_usd
        """Average cost of a request in earlier starts, used until this start has responses."""

        self.reserved: dict[tuple[CostAccount, str], float] = {}
        """Account and request id -> the highest cost, for requests in flight. Several judges may get the same request."""

        self._refused_usd = 0.0
        self._settled = asyncio.Event()

    def account(self, model: Model) -> CostAccount:
        """Open the account of the model or of a judge."""
        name = get_billing_name(model, self.prices)
        return CostAccount(self, model, self.prices.find(name) if name else None, billed=bool(name))

    @property
    def remaining_usd(self) -> float:
        """What may still be reserved."""
        return (self.limit_usd or 0.0) - self.spent_usd - sum(self.reserved.values())

    async def admit(self, account: CostAccount, window: Sequence[Request]) -> list[Request]:
        """Return the first requests that fit into the budget, and reserve their highest cost.

        If none fits, wait for requests in flight, which may cost less than reserved. An empty list means that the limit
        is reached.
        """
        while not self.is_exhausted:
            if admitted := account.reserve(window):
                return admitted
            if not self.reserved:
                self.is_exhausted = True
                self._refused_usd = account.bound_cost(window[0]) or 0.0
                break
            self._settled.clear()
            await self._settled.wait()
        return []

    def settle(self, account: CostAccount, request_id: str, cost_usd: float | None) -> None:
        """Release the reservation of a request and add its cost."""
        self.reserved.pop((account, request_id), None)
        self.spent_usd += cost_usd or 0.0
        self._settled.set()

    def build_error(self) -> BudgetExceeded:
        """Build the error of a run that reached its limit."""
        limit = self.limit_usd or 0.0
        over = self.spent_usd - limit
        if over > 0:
            what = f"${self.spent_usd:.4g} spent, ${over:.4g} more than --max_cost {limit:g}"
        else:
            what = f"${self.spent_usd:.4g} spent; the next request could exceed --max_cost {limit:g}"
            what += f" (up to ${self._refused_usd:.4g})" if self._refused_usd else ""
        return BudgetExceeded(
            f"stopped: {what}",
            hint="all responses are saved; repeat the command with a higher --max_cost to resume, or limit the length of"
            " answers (`--gen_kwargs max_gen_toks=N`)",
        )


class CostAccount:
    """The part of a ledger that belongs to one model."""

    def __init__(self, ledger: CostLedger, model: Model, price: Price | None, *, billed: bool) -> None:
        self._ledger = ledger
        self._model = model
        self._price = price
        self._batched = bool(getattr(model, "batched", False))
        self.billed = billed
        """Whether the model costs money."""

        self._bounds: dict[str, float | None] = {}
        """Request id -> the computed highest cost, for requests in flight; None without an output limit."""

        self._input_sizes: dict[str, int] = {}
        self._highest_ratio = 0.0
        """The highest ratio of a charged cost to the computed highest cost."""

        self._highest_input_ratio: float | None = None
        """The highest number of input tokens per computed token; None before the first response."""

        self._highest_cost = 0.0
        self._answers = 0
        """Responses with a known cost."""

        self._has_response = False
        """Whether the model responded, with or without usage."""

    async def admit(self, window: Sequence[Request]) -> list[Request]:
        """Return the requests that may be sent; for a free model, all of them."""
        if self._price is None or self._ledger.limit_usd is None:
            return [] if self._ledger.is_exhausted else list(window)
        return await self._ledger.admit(self, window)

    def reserve(self, window: Sequence[Request]) -> list[Request]:
        """Reserve the highest cost of the first requests that fit, and return them."""
        ledger = self._ledger
        if not self._has_response and self._bounds and not self._batched:
            return []  # the first request is in flight
        remaining, admitted = ledger.remaining_usd, list[Request]()
        for request in window:
            bound, expected = self.bound_cost(request), self._expect_cost(request)
            alone = not ledger.reserved
            if bound is None:  # no limit: alone until an answer shows a usual cost
                bound = (
                    self._margin * self._highest_cost if self._answers else remaining if alone else math.inf
                )
            bound = max(bound, ledger.usual_usd if not self._answers else 0.0)
            if bound > remaining or remaining <= 0:
                if not (alone and self._answers and 0 < expected <= remaining):
                    break
                bound = expected
            self._track(request)
            ledger.reserved[self, request.id] = bound
            remaining -= bound
            admitted.append(request)
            if not self._has_response and not self._batched:
                break  # the server may ignore the limit: its first answer shows that
        return admitted

    def bound_cost(self, request: Request) -> float | None:
        """Return the highest cost of a request; None if the model has no output limit."""
        return self._widen_bound(self._compute_bound(request))

    @property
    def _margin(self) -> float:
        return max(UNKNOWN_LIMIT_MARGIN, FIRST_ANSWERS_MARGIN / max(1, self._answers))

    def _widen_bound(self, computed: float | None) -> float | None:
        """Return the highest cost by what answers cost so far: more than the computed one if the server ignores the limit."""
        if computed is None or self._highest_ratio <= 1:
            return computed
        return self._margin * max(self._highest_ratio * computed, self._highest_cost)

    def _expect_cost(self, request: Request) -> float:
        """Return the cost of a request at the highest ratio so far."""
        computed = self._compute_bound(request)
        if computed is None:
            return self._highest_cost
        return max(self._highest_ratio * computed, self._highest_cost if self._highest_ratio > 1 else 0.0)

    def _compute_bound(self, request: Request) -> float | None:
        limit = find_output_limit(self._model, request) if isinstance(request, Generate) else 1
        if limit is None or self._price is None:
            return None
        usage = bound_usage(request, limit)
        if self._highest_input_ratio is not None:
            size = math.ceil(usage.input_tokens * min(1.0, INPUT_MARGIN * self._highest_input_ratio))
            usage = replace(usage, input_tokens=size)
        return self._price.cost(replace(usage, batched=self._batched)) or 0.0

    def _track(self, request: Request) -> None:
        self._bounds[request.id] = self._compute_bound(request)
        self._input_sizes[request.id] = bound_usage(request, None).input_tokens

    def charge(self, outcome: Outcome) -> Outcome:
        """Return the outcome with its cost."""
        if not self.billed:
            return outcome
        bound = self._bounds.pop(outcome.request_id, None)
        size = self._input_sizes.pop(outcome.request_id, 0)
        if isinstance(outcome, Failure):
            self._ledger.settle(self, outcome.request_id, None)
            return outcome
        self._has_response = True
        if outcome.usage is None:  # unknown, not nothing: the reservation counts as spent
            self._ledger.settle(self, outcome.request_id, bound)
            return outcome
        usage = outcome.usage
        cost = usage.cost_usd
        if cost is None and self._price is not None:
            cost = self._price.cost(usage)
        if self._learn(bound, size, usage, cost):
            self._raise_reservations()
        self._ledger.settle(self, outcome.request_id, cost)
        return outcome if cost == usage.cost_usd else replace(outcome, usage=replace(usage, cost_usd=cost))

    def release(self, request_id: str) -> None:
        """Release the reservation of a request that was not sent or gets no answer."""
        self._bounds.pop(request_id, None)
        self._input_sizes.pop(request_id, None)
        self._ledger.settle(self, request_id, None)

    def release_all(self) -> None:
        """Release all reservations of the model: it gets no more requests, and none is in flight."""
        for request_id in list(self._bounds):
            self.release(request_id)

    def _raise_reservations(self) -> None:
        """Reserve more for requests in flight if an answer shows that they may cost more."""
        for request_id, computed in self._bounds.items():
            bound = self._margin * self._highest_cost if computed is None else self._widen_bound(computed)
            reserved = self._ledger.reserved.get((self, request_id))
            if reserved is not None and bound is not None and bound > reserved:
                self._ledger.reserved[self, request_id] = bound

    def _learn(self, bound: float | None, size: int, usage: Usage, cost: float | None) -> bool:
        """Compare an answer with its reservation; return whether requests in flight may cost more than is reserved for them."""
        if cost is None:
            return False
        self._answers += 1
        ratio = cost / bound if bound else 0.0
        rose = cost > self._highest_cost or ratio > self._highest_ratio
        self._highest_cost = max(self._highest_cost, cost)
        self._highest_ratio = max(self._highest_ratio, ratio)
        if size:
            self._highest_input_ratio = max(self._highest_input_ratio or 0.0, usage.input_tokens / size)
        return rose
