"""`assay bench model` on the command line."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Assay

SMALL = ("--requests", "4", "--prompt_words", "8", "--output_tokens", "4")


def test_the_table_has_a_row_per_workload(assay_command: Assay) -> None:
    called = assay_command("bench", "model", "--model", "dummy", *SMALL)
    assert called.code == 0, called.err
    lines = called.out.splitlines()
    assert lines[0] == "dummy"
    header = next(line for line in lines if "requests/s" in line)
    for title in ("input tokens/s", "output tokens/s", "busy", "of ideal", "peak memory"):
        assert title in header
    rows = {
        line.split()[0]: line.split() for line in lines if line.startswith(" ") and "requests/s" not in line
    }
    assert {"generate", "likelihood", "rolling"} <= rows.keys()
    assert rows["likelihood"][2:4] == ["–", "–"]  # unknown tokens
    assert "note: the ideal rate is unknown" in called.out
    assert "measuring rolling" in called.err


def test_json_has_the_selected_workloads(assay_command: Assay) -> None:
    called = assay_command(
        "bench", "model", "--model", "dummy", *SMALL, "--workloads", "chat,rolling", "--json"
    )
    found = json.loads(called.out)
    assert [one["workload"] for one in found["workloads"]] == ["chat", "rolling"]
    assert found["workloads"][0]["requests"] == 4


@pytest.mark.parametrize(
    ("arguments", "what", "hint"),
    [
        (["--model", "no_such_model"], "no model is called `no_such_model`", "assay ls models"),
        (["--workloads", "speed"], "unknown workload `speed`", "generate, likelihood, rolling, chat"),
        (["--requests", "0"], "--requests", "--help"),
        (["--batch_size", "many"], "`many` is not a batch size", "auto"),
        (["--tasks", "arc_easy"], "unknown option `--tasks`", "--help"),
        (["--model", "oracle"], "targets", ""),
    ],
)
def test_bad_input_has_an_error_and_a_hint(
    assay_command: Assay, arguments: list[str], what: str, hint: str
) -> None:
    called = assay_command("bench", "model", *arguments)
    assert called.code == 2
    assert what in called.err and hint in called.err and "Traceback" not in called.err
    assert not called.out
