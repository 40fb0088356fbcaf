"""Live progress: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import io
import time
from collections import Counter

import pytest

from assay.core.progress import RunProgress, TaskProgress
from assay.viewer.terminal import progress as viewer
from assay.viewer.terminal.progress import (
    build_progress_table,
    format_eta,
    format_problems,
    format_progress_line,
    format_running_score,
    show_progress,
)


def half_done(**details: object) -> RunProgress:
    progress = RunProgress(stage="ask", tasks={"sums": TaskProgress("sums", 10, done=5)})
    progress.started = time.monotonic() - 10
    for name, value in details.items():
        setattr(progress, name, value)
    return progress


def test_the_line_shows_progress_rate_and_eta() -> None:
    assert format_progress_line(half_done()).startswith("running  5/10 documents  0.5/s  ETA ")


def test_documents_from_an_earlier_session_do_not_count_towards_the_rate() -> None:
    progress = half_done()
    progress.tasks["sums"].reused = 5
    assert format_progress_line(progress) == "running  5/10 documents"


def test_the_line_shows_cached_responses_and_failures() -> None:
    shown = format_progress_line(half_done(cached=3, failures=Counter({"timeout": 2, "bad media": 1})))
    assert "3 responses from the cache" in shown
    assert shown.endswith("failed: 1 bad media, 2 timeout")


def test_a_finished_run_has_no_rate_and_no_eta() -> None:
    assert format_progress_line(half_done(stage="done")) == "done  5/10 documents"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (5400, "1 h 30 min"), (90000, "25 h 0 min")],
)
def test_an_eta_is_rounded_to_minutes(seconds: float, shown: str) -> None:
    assert format_eta(seconds) == shown


def test_the_running_score_has_a_standard_error_from_the_second_document_on() -> None:
    task = TaskProgress("sums", 10, metric="acc")
    assert format_running_score(task) == ""
    task.add_scores([1.0])
    assert format_running_score(task) == "acc 1.000"
    task.add_scores([0.0])
    assert format_running_score(task) == "acc 0.500 ± 0.500"


def test_documents_without_a_score_are_counted() -> None:
    task = TaskProgress("sums", 10, endings=Counter(scored=4, failed=2, unscored=1))
    assert format_problems(task) == "[yellow]1 unscored[/yellow], [red]2 failed[/red]"
    assert format_problems(TaskProgress("sums", 10)) == ""


def render(progress: RunProgress) -> str:
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=160).print(build_progress_table(progress))
    return stream.getvalue()


def test_unfinished_tasks_are_shown_before_finished_ones() -> None:
    tasks = {f"t{at}": TaskProgress(f"t{at}", 1, done=int(at < 10)) for at in range(30)}
    shown = render(RunProgress(stage="ask", tasks=tasks))
    assert "t10 " in shown
    assert "t0 " not in shown
    assert "… and 16 more" in shown


def test_a_task_name_with_brackets_is_not_parsed_as_markup() -> None:
    assert "sums[red]" in render(RunProgress(tasks={"x": TaskProgress("sums[red]", 1)}))


def test_without_a_terminal_a_line_is_printed_periodically_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(viewer, "LINE_INTERVAL_S", 0.01)
    stream, progress = io.StringIO(), half_done()
    with show_progress(progress, stream):
        deadline = time.monotonic() + 60
        while not stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        progress.stage = "done"
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("running  5/10 documents")
    assert lines[-1] == "done  5/10 documents"


def test_on_a_terminal_the_bars_are_removed_at_the_end() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with show_progress(half_done(), stream):
        pass
    assert "sums" in stream.getvalue()
    assert stream.getvalue().rstrip("\r").endswith("\x1b[2K"), "the lines are erased"


def test_interrupted_progress_leaves_no_thread_running() -> None:
    import threading

    with pytest.raises(KeyboardInterrupt), show_progress(half_done(), io.StringIO()):
        raise KeyboardInterrupt
    assert "assay-progress" not in [thread.name for thread in threading.enumerate()]


def test_a_pause_of_the_server_is_shown() -> None:
    progress = RunProgress(stage="ask", measure_pause_s=lambda: 240.0)
    assert "rate limited, next try in 4 min" in format_progress_line(progress)
    progress.measure_pause_s = lambda: 0.0
    assert "rate limited" not in format_progress_line(progress)
