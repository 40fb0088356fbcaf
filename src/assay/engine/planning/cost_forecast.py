"""Forecast the requests and the cost of a run: render every prompt, send nothing.

If the tokenizer of the model is known, prompts are counted in tokens; after the first prompts of a task, which show the numbers
of characters per token, the others are estimated. If it is unknown, as that of most services, the low end of the range assumes
five characters per token, the high end three. Answers are short at the low end, and end at their token limit at the high end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.core.errors import AssayError, ErrorGroup
from assay.core.ports import Model, SupportsTokenCounts, SupportsTruncationPreview
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

_MAX_COUNTED_PROMPTS = 500
"""Prompts of a task that are counted in tokens, so that planning large tasks stays fast."""

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

    counted: int = 0
    """Prompts that were counted in tokens."""

    tokens_per_character: Range = field(default_factory=Range)
    """The smallest and the largest ratio of a counted prompt."""

    def add(self, request: Request, model: Model) -> None:
        """Count one request to a model."""
        self.kinds[get_required_ability(request)] += 1
        found = model.preview_truncation(request) if isinstance(model, SupportsTruncationPreview) else None
        count = self._count_tokens(request, model) if found is None else found.tokens
        self.input_tokens += self._estimate_tokens(request) if count is None else Range(count, count)
        if isinstance(request, Generate):
            limit = find_output_limit(model, request)
            limit = _DEFAULT_MAX_TOKENS if limit is None else limit
            self.output_tokens += Range(min(_MIN_ANSWER_TOKENS, limit), limit)
        if found is not None:
            self.truncated += 1
            self.truncated_tokens += found.truncated_tokens
            self.kept_tokens += found.tokens

    def _count_tokens(self, request: Request, model: Model) -> int | None:
        """Return the tokens of a prompt if the model knows them; None after the first prompts of the task."""
        if self.counted >= _MAX_COUNTED_PROMPTS or not isinstance(model, SupportsTokenCounts):
            return None
        count = model.count_input_tokens(request)
        letters = len(request.prompt.text)
        if count is not None and letters:
            ratio, known = count / letters, self.tokens_per_character
            self.tokens_per_character = Range(
                min(known.low, ratio) if self.counted else ratio, max(known.high, ratio)
            )
            self.counted += 1
        return count

    def _estimate_tokens(self, request: Request) -> Range:
        """Estimate the tokens of a prompt from its length."""
        letters, media = len(request.prompt.text), len(request.prompt.media)
        if self.counted and not media:
            return Range(letters * self.tokens_per_character.low, letters * self.tokens_per_character.high)
        if isinstance(request, Likelihood):
            letters += len(request.continuation)
        low, high = (
            letters / size + media * each
            for size, each in zip(_CHARACTERS_PER_TOKEN, _TOKENS_PER_MEDIUM, strict=True)
        )
        return Range(low, high)


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
