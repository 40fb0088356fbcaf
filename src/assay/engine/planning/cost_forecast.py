"""Forecast the requests and the cost of a run: render every prompt, send nothing.

Tokens are estimated from the length of the text, because the tokenizer of a service is unknown: a range, not a number. The low
end assumes five characters per token and short answers, the high end three characters and answers up to their token limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.core.errors import AssayError, ErrorGroup
from assay.core.ports import Model, SupportsTruncationPreview
from assay.core.records.requests import Generate, Likelihood, Request
from assay.core.records.responses import Usage
from assay.engine.planning.records import Plan
from assay.engine.planning.setup.capabilities import get_required_ability
from assay.engine.running.cost_ledger import find_output_limit, get_billing_name
from assay.models.prices import load_prices
from assay.user_code.errors import wrap_user_errors

__all__ = ["CostForecast", "Range", "TaskForecast", "forecast_cost"]

_CHARACTERS_PER_TOKEN = (5, 3)
"""Characters per token: more than four in plain English, fewer in code, numbers and other languages."""

_TOKENS_PER_MEDIUM = (85, 1_600)
"""Tokens of a medium: the minimum, and those of a large image."""

_MIN_ANSWER_TOKENS, _DEFAULT_MAX_TOKENS = 4, 1_024
"""Tokens of a short answer, and of an answer without a limit."""


@dataclass(frozen=True, slots=True)
class Range:
    """An estimated range."""

    low: float = 0
    high: float = 0

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)


@dataclass(slots=True)
class TaskForecast:
    """The requests of one task."""

    kinds: Counter[str] = field(default_factory=Counter)
    input_tokens: Range = field(default_factory=Range)
    output_tokens: Range = field(default_factory=Range)
    truncated: int = 0
    """Requests whose prompt exceeds the context length, if the model can tell."""

    truncated_tokens: int = 0
    """Tokens that will be removed from these prompts."""

    kept_tokens: int = 0
    """Tokens that remain of these prompts."""

    def add(self, request: Request, model: Model) -> None:
        """Count one request to a model."""
        self.kinds[get_required_ability(request)] += 1
        letters, media = len(request.prompt.text), len(request.prompt.media)
        if isinstance(request, Likelihood):
            letters += len(request.continuation)
        low, high = (
            letters / size + media * each
            for size, each in zip(_CHARACTERS_PER_TOKEN, _TOKENS_PER_MEDIUM, strict=True)
        )
        self.input_tokens += Range(low, high)
        if isinstance(request, Generate):
            limit = find_output_limit(model, request)
            limit = _DEFAULT_MAX_TOKENS if limit is None else limit
            self.output_tokens += Range(min(_MIN_ANSWER_TOKENS, limit), limit)
        if isinstance(model, SupportsTruncationPreview) and (found := model.preview_truncation(request)):
            self.truncated += 1
            self.truncated_tokens += found.truncated_tokens
            self.kept_tokens += found.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class CostForecast:
    """The requests and the cost of a run, without judges, whose requests depend on answers."""

    tasks: Mapping[str, TaskForecast]
    billed_as: str
    """The billing name of the model; empty if it is free."""

    cost_usd: Range | None
    """None if the price is unknown or the model is free."""

    price_date: str = ""

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """The number of requests of each kind, by task."""
        return {name: dict(task.kinds) for name, task in self.tasks.items()}

    @property
    def input_tokens(self) -> Range:
        return sum((task.input_tokens for task in self.tasks.values()), Range())

    @property
    def output_tokens(self) -> Range:
        return sum((task.output_tokens for task in self.tasks.values()), Range())

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        cost = None if self.cost_usd is None else [self.cost_usd.low, self.cost_usd.high]
        return {
            "input_tokens": [round(self.input_tokens.low), round(self.input_tokens.high)],
            "output_tokens": [round(self.output_tokens.low), round(self.output_tokens.high)],
            "billed_as": self.billed_as,
            "cost_usd": cost,
            "price_date": self.price_date,
        }


def forecast_cost(plan: Plan) -> CostForecast:
    """Render every prompt and estimate requests, tokens and cost.

    Raises:
        ErrorGroup: A document cannot be rendered. A run would count it as failed and continue.
    """
    tasks: dict[str, TaskForecast] = {}
    problems: list[AssayError] = []
    for name, planned in plan.tasks.items():
        tasks[name] = TaskForecast()
        try:
            rendered = iter(planned.task.render())
            while True:
                with wrap_user_errors(planned.spec):
                    document = next(rendered, None)
                if document is None:
                    break
                for request in document[1]:
                    tasks[name].add(request, plan.model)
        except AssayError as error:
            several = error.errors if isinstance(error, ErrorGroup) else (error,)
            problems += [one for one in several if str(one) not in map(str, problems)]
    if problems:
        raise problems[0] if len(problems) == 1 else ErrorGroup(problems)
    prices = load_prices(plan.spec.prices)
    billed = get_billing_name(plan.model, prices)
    price = prices.find(billed) if billed else None
    found = CostForecast(tasks=tasks, billed_as=billed, cost_usd=None)
    if price is None:
        return found
    batched = plan.spec.batch_api
    ends = [
        price.cost(Usage(round(read), round(written), batched=batched))
        for read, written in (
            (found.input_tokens.low, found.output_tokens.low),
            (found.input_tokens.high, found.output_tokens.high),
        )
    ]
    cost = None if None in ends else Range(ends[0] or 0.0, ends[1] or 0.0)
    return CostForecast(tasks=tasks, billed_as=billed, cost_usd=cost, price_date=price.date)
