"""The table of lm-eval."""

from __future__ import annotations

from typing import Any

from assay_compat.commands.results_table import make_table

RESULTS: dict[str, Any] = {
    "results": {
        "mini_mc": {
            "alias": "mini_mc",
            "acc,none": 1 / 3,
            "acc_stderr,none": 0.14213,
            "acc_norm,none": 1 / 6,
            "acc_norm_stderr,none": 0.1124,
        }
    },
    "versions": {"mini_mc": "Yaml"},
    "n-shot": {"mini_mc": 0},
    "higher_is_better": {"mini_mc": {"acc": True, "acc_norm": True}},
}


def test_table_is_the_one_of_lm_eval() -> None:
    assert make_table(RESULTS) == (
        "| Tasks |Version|Filter|n-shot| Metric |   |Value |   |Stderr|\n"
        "|-------|-------|------|-----:|--------|---|-----:|---|-----:|\n"
        "|mini_mc|Yaml   |none  |     0|acc     |↑  |0.3333|±  |0.1421|\n"
        "|       |       |none  |     0|acc_norm|↑  |0.1667|±  |0.1124|\n"
    )


def test_members_of_a_group_are_below_it() -> None:
    entry = {"acc,none": 0.5}
    results = {
        "results": {"b": entry, "a": entry, "g": entry, "z": entry},
        "versions": {},
        "group_subtasks": {"g": ["b", "a"]},
    }
    names = [line.split("|")[1].rstrip() for line in make_table(results).splitlines()[2:]]
    assert names == ["g", " - a", " - b", "z"]


def test_numbers_of_a_column_have_the_decimals_that_one_of_them_needs() -> None:
    results = {
        "results": {
            "a": {"alias": "a", "acc,none": 0.5, "acc_stderr,none": 0.0},
            "bb": {"alias": "bb", "acc,none": 12.25, "perplexity,none": float("nan")},
        },
        "versions": {"a": 1.0, "bb": "Yaml"},
        "n-shot": {"a": 5, "bb": 10},
    }
    assert make_table(results) == (
        "|Tasks|Version|Filter|n-shot|  Metric  |   |Value|   |Stderr|\n"
        "|-----|-------|------|-----:|----------|---|----:|---|-----:|\n"
        "|a    |      1|none  |     5|acc       |   | 0.50|±  |     0|\n"
        "|bb   |Yaml   |none  |    10|acc       |   |12.25|   |      |\n"
        "|     |       |none  |    10|perplexity|   |  NaN|   |      |\n"
    )


def test_texts_that_are_numbers_are_written_as_numbers() -> None:
    """As pytablewriter does: before the second other text of a column, if its first cell is a number."""
    results = {
        "results": {
            "a": {"alias": "a", "acc,none": 1.0, "acc_stderr,none": 0.0},
            "b": {"alias": "b", "acc,none": 1.0, "acc_stderr,none": "N/A"},
            "c": {"alias": "c", "acc,none": 1.0, "acc_stderr,none": 0.147},
        },
        "versions": {"a": "4", "b": "Yaml", "c": "1.50"},
        "n-shot": {"a": 0, "b": 0, "c": 0},
    }
    assert make_table(results) == (
        "|Tasks|Version|Filter|n-shot|Metric|   |Value|   |Stderr|\n"
        "|-----|-------|------|-----:|------|---|----:|---|------|\n"
        "|a    |      4|none  |     0|acc   |   |    1|±  |     0|\n"
        "|b    |Yaml   |none  |     0|acc   |   |    1|±  |   N/A|\n"
        "|c    |    1.5|none  |     0|acc   |   |    1|±  | 0.147|\n"
    )
    results["versions"] = {"a": "Yaml", "b": "4", "c": "5"}
    assert [line[7:14] for line in make_table(results).splitlines()[2:]] == ["Yaml   ", "4      ", "5      "]
