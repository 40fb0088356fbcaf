from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.conftest import Assay
from tests.making import write_task
from tests.models.hosted.services import KEY, Anthropic, serving

SWEEP = """
models: [embedded, {name: nobody, model: dummy}]
tasks: [quickstart_addition]
settings: [{num_fewshot: 0}, {name: with shots, num_fewshot: 2}]
options: {limit: 3}
"""


@pytest.fixture
def sweep(workspace: Path) -> str:
    (workspace / "mine.yaml").write_text(SWEEP)
    return "mine.yaml"


def test_dry_run_prints_counts_and_starts_no_run(assay_command: Assay, sweep: str) -> None:
    called = assay_command("sweep", sweep, "--dry_run")
    assert called.code == 0, called.err
    assert "4 of 4 runs remaining: 12 documents, at most 12 requests" in called.out
    assert not Path("assay-runs").exists()


def test_dry_run_prints_the_cost(
    assay_command: Assay, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    prices = 'date = "2031-02-03"\n[prices]\n"127.0.0.1/*" = { input = 0, output = 1000000 }'
    (workspace / "mine.toml").write_text(prices)  # a dollar for a token
    with serving(Anthropic()) as service:
        (workspace / "paid.yaml").write_text(
            f"models: [{{model: anthropic, model_args: {{model: m, base_url: '{service.url}/v1'}}}}]\n"
            "tasks: [quickstart_addition]\noptions: {limit: 3, prices: mine.toml, apply_chat_template: true}\n"
            "settings: [{seed: 1}, {seed: 2}]\n"
        )
        called = assay_command("sweep", "paid.yaml", "--dry_run")
        assert called.code == 0, called.err
        cost = re.search(r"cost: \$([\d.]+) to \$([\d.]+)", called.out)
        assert cost is not None and 0 < float(cost[1]) < float(cost[2])
        rows = json.loads(assay_command("sweep", "paid.yaml", "--dry_run", "--json").out)["runs"]
        assert float(cost[2]) == pytest.approx(sum(row["estimate"]["cost_usd"][1] for row in rows), abs=0.01)


def test_sweep_prints_the_total_cost(
    assay_command: Assay, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    (workspace / "mine.toml").write_text(
        'date = "2031-02-03"\n[prices]\n"127.0.0.1/*" = { input = 0, output = 1e6 }'
    )
    write_task(
        workspace, metric_list=[{"metric": "good", "judge": {"kind": "binary"}}, {"metric": "exact_match"}]
    )
    with serving(Anthropic()) as service:
        where = f"model: anthropic, model_args: {{model: m, base_url: '{service.url}/v1'}}"
        (workspace / "paid.yaml").write_text(
            f"models: [{{{where}}}]\ntasks: [sums.yaml]\nsettings: [{{seed: 1}}, {{seed: 2}}]\n"
            "options: {limit: 2, prices: mine.toml, apply_chat_template: true, no_cache: true, "
            f"judge: 'anthropic,model=j,base_url={service.url}/v1'}}\n"
        )
        called = assay_command("sweep", "paid.yaml", "--no_report")
        runs = json.loads(assay_command("sweep", "paid.yaml", "--no_report", "--json").out)
    assert called.code == 0, called.err
    costs = [totals["cost_usd"] for run in runs["runs"] for totals in run["usage"].values()]
    assert len(costs) == 4 and runs["cost_usd"] == sum(costs) > 0
    assert f"total cost of 2 runs, judges included: ${sum(costs):.2f}" in called.out


def test_sweep_executes_each_run_once_and_prints_a_table(assay_command: Assay, sweep: str) -> None:
    called = assay_command("sweep", sweep, "--json", "-o", "results", "--no_report")
    assert called.code == 0, called.err
    runs = json.loads(called.out)["runs"]
    assert [(run["model"], run["setting"], run["finished"]) for run in runs] == [
        ("embedded", "num_fewshot=0", True),
        ("embedded", "with shots", True),
        ("nobody", "num_fewshot=0", True),
        ("nobody", "with shots", True),
    ]
    scores = [run["results"]["quickstart_addition"]["exact_match,get-sum"] for run in runs]
    assert scores == [1.0, 1.0, 0.0, 0.0]
    assert all(Path(run["folder"]).is_relative_to("results") for run in runs)

    journals = {path: path.stat().st_mtime_ns for path in Path("results").rglob("journal.sqlite")}
    again = assay_command("sweep", sweep, "--jobs", "2", "-o", "results")
    assert again.code == 0, again.err
    assert {path: path.stat().st_mtime_ns for path in Path("results").rglob("journal.sqlite")} == journals
    assert "embedded" in again.out and "with shots" in again.out and "1.0000" in again.out
    assert "with shots" in Path("results/mine.html").read_text() or "no report" in again.err
    logs = sorted(path.name for path in Path("results/mine-logs").iterdir())
    assert len(logs) == 4 and "already finished" in Path("results/mine-logs", logs[0]).read_text()


def test_problems_of_all_runs_are_reported_before_the_first_run(
    assay_command: Assay, workspace: Path
) -> None:
    (workspace / "bad.yaml").write_text("models: [embedded, embeded]\ntasks: [quickstart_addition, nosuch]\n")
    called = assay_command("sweep", "bad.yaml")
    assert called.code == 2
    assert called.err.count("nosuch") >= 1 and "no model is called `embeded`" in called.err
    assert not Path("assay-runs").exists()


def test_failed_run_does_not_stop_the_others(assay_command: Assay, workspace: Path) -> None:
    (workspace / "broken.py").write_text("def wrong(document, results):\n    raise ValueError('broken')\n")
    rows = "\n".join(json.dumps({"q": f"{n} + 1 =", "a": str(n + 1)}) for n in range(3))
    (workspace / "rows.jsonl").write_text(rows)
    (workspace / "broken.yaml").write_text(
        "task: broken\ndataset_path: json\ndataset_kwargs: {data_files: rows.jsonl}\ntest_split: train\n"
        "doc_to_text: '{{q}}'\ndoc_to_target: '{{a}}'\noutput_type: generate_until\n"
        "process_results: !function broken.wrong\nmetric_list: [{metric: exact_match}]\n"
    )
    (workspace / "half.yaml").write_text(
        "models: [embedded]\nsettings: [{name: bad, tasks: [broken.yaml]}, {name: good}]\n"
        "tasks: [quickstart_addition]\noptions: {limit: 2}\n"
    )
    called = assay_command("sweep", "half.yaml", "--json", "--no_report")
    assert called.code == 1
    assert "1 of 2 runs failed: embedded, bad" in called.err
    assert [(run["setting"], run["exit_code"]) for run in json.loads(called.out)["runs"]] == [
        ("bad", 1),
        ("good", 0),
    ]


def test_interrupted_sweep_continues_when_repeated(workspace: Path) -> None:
    (workspace / "mine.yaml").write_text(
        "models: [embedded]\ntasks: [quickstart_addition]\nsettings: [{num_fewshot: 0}, {num_fewshot: 2}]\n"
    )
    command = [
        sys.executable,
        "-m",
        "assay",
        "sweep",
        "mine.yaml",
        "--limit",
        "40",
        "--json",
        "--no_report",
        "--no_cache",
    ]
    stopped = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(Path().rglob("journal.sqlite")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(stopped.pid, signal.SIGTERM)
    _, said = stopped.communicate(timeout=60)
    assert stopped.returncode == 130 and "To continue" in said
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert all(run["finished"] for run in json.loads(done.stdout)["runs"])
