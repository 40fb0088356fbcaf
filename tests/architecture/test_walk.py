"""docs/design/walk.md: the modules that run code for each document, counted in real runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "design" / "walk.md"

TRACED_RUN = """
import collections, json, sys, threading
from pathlib import Path

rows = ({"question": f"{index} + 1 =", "answer": str(index + 1)} for index in range(40))
Path("rows.jsonl").write_text("\\n".join(map(json.dumps, rows)))
Path("helpers.py").write_text("def score(doc, results): return {'exact': 1.0}\\n")
Path("task.yaml").write_text(sys.argv[1])

import assay.engine.run
import assay.engine.running.document_reader
from assay.cli import main

assay.engine.run.CHUNK_SIZE = assay.engine.running.document_reader.CHUNK_SIZE = 1  # every stage runs once per document
threads = collections.defaultdict(set)

def count_calls(documents):
    calls = collections.Counter()
    def profile(frame, event, _):
        module = frame.f_globals.get("__name__", "")
        generated = frame.f_code.co_filename == "<string>"  # the constructor of a dataclass is not a place to look at
        if event == "call" and module.startswith("assay.") and not generated:
            calls[module, frame.f_code.co_qualname] += 1
            threads[module].add(threading.current_thread().name)
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        main(["run", "--model", "dummy", "--tasks", "task.yaml", "--limit", str(documents), "--no_cache", "--json"])
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls

count_calls(2)
few, many = count_calls(5), count_calls(25)
modules = sorted({module for module, function in many if many[module, function] - few[module, function] >= 18})
print("TRACE " + json.dumps({module: sorted(threads[module]) for module in modules}))
"""

TASK = """
task: walked
dataset_path: json
dataset_kwargs: {data_files: {test: rows.jsonl}}
test_split: test
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"]}
"""
PLAIN = TASK + "metric_list: [{metric: exact_match}]\n"
WITH_CODE = (
    TASK
    + "process_results: !function helpers.score\nmetric_list: [{metric: exact, aggregation: mean, higher_is_better: true}]\n"
)
AFTER_THE_VERDICT = {"assay.stats.numerics.value_list"}
"""Aggregation, which reads stored verdicts."""

MAX_MODULES = 30
BACKGROUND_THREADS = {"assay-journal", "assay-time-limit"}
"""The journal's writer, behind the last stage, and the watcher of time limits."""


def trace(task: str, folder: Path) -> dict[str, list[str]]:
    """Return the modules that run code for each document, with their threads."""
    finished = subprocess.run(
        [sys.executable, "-c", TRACED_RUN, task], cwd=folder, capture_output=True, text=True, check=True
    )
    (line,) = [line for line in finished.stdout.splitlines() if line.startswith("TRACE ")]
    found: dict[str, list[str]] = json.loads(line.removeprefix("TRACE "))
    return {module: threads for module, threads in found.items() if module not in AFTER_THE_VERDICT}


def read_page() -> dict[str, set[str]]:
    """Return the modules the page lists, by the heading of their table."""
    tables: dict[str, set[str]] = {}
    for section in re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.M)[1:]:
        title = section.partition("\n")[0]
        tables[title] = {f"assay.{name}" for name in re.findall(r"^\| `([\w.]+)`", section, flags=re.M)}
    return tables


@pytest.mark.parametrize(
    ("task", "heading"),
    [
        pytest.param(PLAIN, "A task without code", id="without code"),
        pytest.param(WITH_CODE, "A task with code", id="with code"),
    ],
)
def test_the_page_lists_the_modules_of_the_walk(task: str, heading: str, tmp_path: Path) -> None:
    walked = set(trace(task, tmp_path))
    tables = read_page()
    listed = tables["A task without code"] | (tables[heading] if heading == "A task with code" else set())
    assert walked - listed == set(), "these run code for each document and are not on the page"
    if heading == "A task without code":
        assert listed - walked == set(), "these are on the page and run no code for a document"


def test_the_walk_of_a_task_without_code_is_short(tmp_path: Path) -> None:
    walked = trace(PLAIN, tmp_path)
    assert len(walked) <= MAX_MODULES, sorted(walked)


def test_the_walk_of_a_task_with_code_is_short(tmp_path: Path) -> None:
    """The records in `core` are not counted here: code passes more of them."""
    walked = {module for module in trace(WITH_CODE, tmp_path) if not module.startswith("assay.core.")}
    assert len(walked) <= MAX_MODULES, sorted(walked)


def test_a_task_without_code_stays_in_the_main_thread(tmp_path: Path) -> None:
    threads = {name for names in trace(PLAIN, tmp_path).values() for name in names}
    assert threads - BACKGROUND_THREADS == {"MainThread"}


def test_a_task_with_code_uses_the_main_thread_and_the_loop(tmp_path: Path) -> None:
    threads = {name for names in trace(WITH_CODE, tmp_path).values() for name in names}
    assert threads - BACKGROUND_THREADS == {"MainThread", "assay-loop"}
