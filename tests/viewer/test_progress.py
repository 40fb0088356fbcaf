"""Live progress: one line elsewhere, bars on a terminal."""

from __future__ import annotations

import io
import time
from collections import Counter

import pytest

from assay.core.progress import RunProgress, TaskProgress
from assay.viewer import progress as viewer
from assay.viewer.progress import duration, line, render, running, show_progress, trouble


def halfway(**details: object) -> RunProgress:
    progress = RunProgress(stage="ask", tasks={"sums": TaskProgress("sums", 10, done=5)})
    progress.started = time.monotonic() - 10
    for name, value in details.items():
        setattr(progress, name, value)
    return progress


def test_the_line_says_how_far_how_fast_and_how_long() -> None:
    assert line(halfway()).startswith("ask  5/10 documents  0.5/s  ETA ")


def test_what_was_there_already_does_not_count_as_speed() -> None:
    progress = halfway()
    progress.tasks["sums"].reused = 5
    assert line(progress) == "ask  5/10 documents"


def test_the_line_says_what_was_reused_and_what_failed() -> None:
    shown = line(halfway(cached=3, failures=Counter({"timeout": 2, "bad media": 1})))
    assert "3 responses reused" in shown
    assert shown.endswith("failed: 1 bad media, 2 timeout")


def test_at_the_end_there_is_no_speed_and_no_eta() -> None:
    assert line(halfway(stage="done")) == "done  5/10 documents"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (5400, "1 h 30 min"), (90000, "25 h 0 min")],
)
def test_a_duration_is_said_as_people_say_it(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_the_running_score_has_an_error_from_the_second_document_on() -> None:
    task = TaskProgress("sums", 10, metric="acc")
    assert running(task) == ""
    task.add_scores([1.0])
    assert running(task) == "acc 1.000"
    task.add_scores([0.0])
    assert running(task) == "acc 0.500 ± 0.500"


def test_trouble_is_counted() -> None:
    task = TaskProgress("sums", 10, endings=Counter(scored=4, failed=2, unscored=1))
    assert trouble(task) == "[yellow]1 unscored[/yellow], [red]2 failed[/red]"
    assert trouble(TaskProgress("sums", 10)) == ""


def drawn(progress: RunProgress) -> str:
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=160).print(render(progress))
    return stream.getvalue()


def test_the_bars_show_unfinished_tasks_first_of_all() -> None:
    tasks = {f"t{at}": TaskProgress(f"t{at}", 1, done=int(at < 10)) for at in range(30)}
    shown = drawn(RunProgress(stage="ask", tasks=tasks))
    assert "t10 " in shown
    assert "t0 " not in shown
    assert "… and 16 more" in shown


def test_a_task_name_with_brackets_is_not_taken_for_a_colour() -> None:
    assert "sums[red]" in drawn(RunProgress(tasks={"x": TaskProgress("sums[red]", 1)}))


def test_elsewhere_a_line_is_printed_now_and_then_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer, "_LINE_EVERY_S", 0.01)
    stream, progress = io.StringIO(), halfway()
    with show_progress(progress, stream):
        deadline = time.monotonic() + 5
        while not stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        progress.stage = "done"
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("ask  5/10 documents")
    assert lines[-1] == "done  5/10 documents"


def test_on_a_terminal_the_bars_vanish_at_the_end() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with show_progress(halfway(), stream):
        pass
    assert "sums" in stream.getvalue()
    assert stream.getvalue().rstrip("\r").endswith("\x1b[2K"), "the lines are wiped"


def test_progress_that_breaks_off_leaves_no_thread_behind() -> None:
    import threading

    with pytest.raises(KeyboardInterrupt), show_progress(halfway(), io.StringIO()):
        raise KeyboardInterrupt
    assert "assay-progress" not in [thread.name for thread in threading.enumerate()]
