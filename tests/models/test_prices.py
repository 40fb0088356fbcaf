"""The price table: dated, overridable, and silent about what it does not know."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.core.errors import InvalidOption
from assay.core.records.responses import Usage
from assay.models.prices import Price, PriceTable, build_billed_name, is_self_hosted, load_prices


def table(text: str, path: Path) -> str:
    path.write_text(f'date = "2030-01-01"\n[prices]\n{text}\n', "utf-8")
    return str(path)


def test_the_shipped_table_has_a_date_and_valid_prices() -> None:
    (shipped,) = load_prices().layers
    assert len(shipped) > 40
    for name, price in shipped.items():
        assert re.fullmatch(r"(openai|anthropic|gemini)/[\w.-]+", name)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", price.date)
        assert 0 < price.input <= price.output
        assert price.cached_input is None or price.cached_input < price.input
        assert price.batch_input is None or price.batch_input == pytest.approx(price.input / 2)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("openai/gpt-4o-mini", "openai/gpt-4o-mini"),
        ("openai/gpt-4o-mini-2024-07-18", "openai/gpt-4o-mini"),
        ("anthropic/claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4-5"),
        ("openai/gpt-4o-2024-05-13", "openai/gpt-4o-2024-05-13"),
        ("OpenAI/GPT-4o", "openai/gpt-4o"),
    ],
)
def test_a_name_finds_its_price_with_and_without_a_date(name: str, found: str) -> None:
    price = load_prices().find(name)
    assert price is not None
    assert price.where.endswith(f", {found}")


@pytest.mark.parametrize("name", ["openai/gpt-4o-turbo-ultra", "gpt-4o", "openai/", "elsewhere/gpt-4o"])
def test_an_unknown_model_has_no_price(name: str) -> None:
    assert load_prices().find(name) is None


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(1_000_000, 0), 2.0),
        (Usage(0, 1_000_000), 8.0),
        (Usage(1_000_000, 0, cached_tokens=1_000_000), 0.5),
        (Usage(1_000_000, 500_000, cached_tokens=500_000), 1.0 + 0.25 + 4.0),
        (Usage(1_000_000, 1_000_000, batched=True), 5.0),
        (Usage(1_000_000, 0, cached_tokens=1_000_000, batched=True), 0.25),
        (Usage(3_000_000, 1_000_000), 3 * 4.0 + 9.0),
    ],
)
def test_the_cost_of_tokens(usage: Usage, cost: float) -> None:
    price = Price(
        input=2.0,
        cached_input=0.5,
        output=8.0,
        batch_input=1.0,
        batch_output=4.0,
        long_context=2_000_000,
        long_input=4.0,
        long_output=9.0,
    )
    assert price.cost(usage) == pytest.approx(cost)


def test_the_cost_of_a_batch_without_a_batch_price_is_unknown() -> None:
    assert Price(input=1.0, output=2.0).cost(Usage(10, 10, batched=True)) is None


def test_the_users_files_take_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path))
    table('"openai/gpt-4o" = { input = 7, output = 8 }', tmp_path / "prices.toml")
    own = table(
        '"*/gpt-4o*" = { input = 1, output = 1 }\n"mine/*" = { input = 0, output = 0 }', tmp_path / "x"
    )
    at_home, given = load_prices(), load_prices(own)
    assert (at_home.find("openai/gpt-4o") or Price(input=0, output=0)).input == 7
    assert (given.find("openai/gpt-4o") or Price(input=0, output=0)).input == 1
    assert given.find("mine/model") is not None
    assert given.find("anthropic/claude-haiku-4-5") is not None


def test_the_longest_matching_pattern_applies() -> None:
    layers = PriceTable(({"a/*": Price(input=1, output=1), "a/model-*": Price(input=2, output=2)},))
    found = layers.find("a/model-1")
    assert found is not None
    assert found.input == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "a price table needs a `date`"),
        ("date = '2030-01-01'\n[prices]\n'a/b' = 3", "at least `input` and `output`"),
        ("date = '2030-01-01'\n[prices]\n'a/b' = { input = 1 }", "at least `input` and `output`"),
        ("date = '2030-01-01'\n[prices]\n'a/b' = { input = 1, output = -1 }", "a non-negative number"),
        (
            "date = '2030-01-01'\n[prices]\n'a/b' = { input = 1, output = 1, ouput = 2 }",
            "unknown key `ouput`",
        ),
        ("date = ", "is not TOML"),
    ],
)
def test_an_invalid_table_is_rejected(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "prices.toml").write_text(text)
    with pytest.raises(InvalidOption, match=re.escape(complaint)):
        load_prices(str(tmp_path / "prices.toml"))


def test_a_missing_table_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="cannot read the price table"):
        load_prices(str(tmp_path / "gone.toml"))


@pytest.mark.parametrize(
    ("address", "name", "own"),
    [
        ("https://api.openai.com/v1", "openai/m", False),
        ("https://api.anthropic.com", "anthropic/m", False),
        ("https://generativelanguage.googleapis.com/v1beta", "gemini/m", False),
        ("https://openrouter.ai/api/v1", "openrouter.ai/m", False),
        ("http://localhost:8000/v1", "localhost/m", True),
        ("http://127.0.0.1:1234", "127.0.0.1/m", True),
        ("http://192.168.1.5/v1", "192.168.1.5/m", True),
        ("http://gpu-box/v1", "gpu-box/m", True),
        ("http://[::1]:8000", "::1/m", True),
        ("https://llm.corp.internal/v1", "llm.corp.internal/m", True),
    ],
)
def test_the_billed_name_depends_on_the_address(address: str, name: str, own: bool) -> None:
    assert build_billed_name(address, "m") == name
    assert is_self_hosted(name) == own
