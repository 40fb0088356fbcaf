"""Prices of tokens: a dated table that ships with Assay, and the user's files, which take precedence.

A model that is in no table has no price: its cost is unknown, never 0.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from assay.core.errors import InvalidOption
from assay.core.home import assay_home
from assay.core.records.responses import Usage

__all__ = ["Price", "PriceTable", "build_billed_name", "is_self_hosted", "load_prices"]

_TOKENS_PER_PRICE = 1_000_000
_PROVIDERS = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gemini",
}
_DATE_SUFFIX = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")


def build_billed_name(base_url: str, model: str) -> str:
    """Return the name of a model in price tables: `provider/model`, or `host/model` for other servers.

    >>> build_billed_name("https://api.openai.com/v1", "gpt-4o-mini")
    'openai/gpt-4o-mini'
    >>> build_billed_name("http://localhost:8000/v1", "llama")
    'localhost/llama'
    """
    host = (urlsplit(base_url).hostname or "").lower()
    return f"{_PROVIDERS.get(host, host)}/{model}"


def is_self_hosted(billed_as: str) -> bool:
    """Return whether the host in a name is this machine or in a private network; such a host charges nothing by default.

    >>> is_self_hosted("localhost/llama"), is_self_hosted("gpu-box/llama"), is_self_hosted("192.168.1.5/llama")
    (True, True, True)
    >>> is_self_hosted("openrouter.ai/llama")
    False
    """
    host = billed_as.partition("/")[0]
    if host in _PROVIDERS.values():
        return False
    if "." not in host or host.endswith((".local", ".internal", ".lan")):
        return True
    try:
        return ip_address(host).is_private
    except ValueError:  # a host name, not an IP address
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of one model, in US dollars per million tokens."""

    input: float
    output: float
    cached_input: float | None = None
    """For input tokens from the service's cache; None: the normal price."""

    batch_input: float | None = None
    """With the batch API; None: unknown."""

    batch_output: float | None = None
    long_context: int | None = None
    """Longer prompts, in tokens, have the long-context prices."""

    long_input: float | None = None
    long_output: float | None = None
    date: str = ""
    """Date of the price table."""

    where: str = ""
    """File and entry of the price."""

    def cost(self, usage: Usage) -> float | None:
        """Return the cost in US dollars; None if the price is unknown.

        >>> Price(input=2.0, cached_input=0.5, output=8.0).cost(Usage(1000, 100, cached_tokens=400))
        0.0022
        """
        read, written = self.input, self.output
        if self.long_context is not None and usage.input_tokens > self.long_context:
            read = self.input if self.long_input is None else self.long_input
            written = self.output if self.long_output is None else self.long_output
        if usage.batched:
            if self.batch_input is None or self.batch_output is None:
                return None
            read, written = self.batch_input, self.batch_output
        cheaper = read if self.cached_input is None else read * self.cached_input / (self.input or 1.0)
        cached = min(usage.cached_tokens, usage.input_tokens)
        total = (usage.input_tokens - cached) * read + cached * cheaper + usage.output_tokens * written
        return total / _TOKENS_PER_PRICE


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by name, in several tables; earlier tables take precedence."""

    layers: tuple[Mapping[str, Price], ...] = field(default=())

    def find(self, billed_as: str) -> Price | None:
        """Return the price of `provider/model`; the longest matching pattern applies.

        A name with a date falls back to the entry without the date.
        """
        for layer in self.layers:
            for name in (billed_as, _DATE_SUFFIX.sub("", billed_as)):
                fitting = [pattern for pattern in layer if fnmatchcase(name.lower(), pattern.lower())]
                if fitting:
                    return layer[max(fitting, key=len)]
        return None


def load_prices(path: str | None = None) -> PriceTable:
    """Load the tables in order of precedence: the file of `--prices`, the file in Assay's home, the shipped table.

    Raises:
        InvalidOption: A file does not exist or is not a price table.
    """
    layers = []
    if path is not None:
        layers.append(_read_table(Path(path).expanduser(), where="--prices"))
    home = assay_home() / "prices.toml"
    if home.is_file():
        layers.append(_read_table(home, where=str(home)))
    return PriceTable((*layers, _load_shipped_table()))


@cache
def _load_shipped_table() -> Mapping[str, Price]:
    content = files("assay.models").joinpath("prices.toml").read_text("utf-8")
    return _parse_table(tomllib.loads(content), where="the price table of Assay")


def _read_table(path: Path, *, where: str) -> Mapping[str, Price]:
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidOption(f"cannot read the price table `{path}`: {reason}", where=where) from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidOption(f"the price table is not TOML: {error}", where=str(path)) from None
    return _parse_table(content, where=str(path))


def _parse_table(content: Mapping[str, Any], *, where: str) -> Mapping[str, Price]:
    entries, date = content.get("prices"), str(content.get("date", ""))
    if not isinstance(entries, dict) or not date:
        raise InvalidOption(
            "a price table needs a `date` and a table `prices`",
            where=where,
            hint='example: date = "2026-11-16", then [prices] and "openai/my-model" = { input = 1.0, output = 2.0 }',
        )
    return {name: _parse_price(name, entry, date, where) for name, entry in entries.items()}


def _parse_price(name: str, entry: Any, date: str, where: str) -> Price:
    known = {item.name for item in fields(Price)} - {"date", "where"}
    place = f"{where}, {name}"
    if not isinstance(entry, dict) or not {"input", "output"} <= set(entry):
        raise InvalidOption("an entry needs at least `input` and `output`", where=place)
    for key, value in entry.items():
        if key not in known:
            raise InvalidOption(
                f"unknown key `{key}`", where=place, hint=f"valid keys: {', '.join(sorted(known))}"
            )
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise InvalidOption(f"`{key}` must be a non-negative number, not {value!r}", where=place)
    return Price(**entry, date=date, where=place)
