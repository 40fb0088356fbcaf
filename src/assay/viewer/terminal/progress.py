"""Live progress: a table that redraws itself on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from assay.core.progress import JudgeProgress, RunProgress, TaskProgress, TokenCount, label_service
from assay.core.records.endings import ENDINGS
from assay.viewer.number_format import format_count, format_dollars
from assay.viewer.text_tables import Column, TextTable

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["show_progress"]

LINE_INTERVAL_S = 5.0
_MAX_TASKS = 12
_BAR_WIDTH = 24


@contextmanager
def show_progress(progress: RunProgress, stream: TextIO | None = None) -> Iterator[None]:
    """Show the progress while the block runs: redrawn on a terminal, plain lines elsewhere."""
    stream = sys.stderr if stream is None else stream
    if stream.isatty():
        from rich.console import Console
        from rich.live import Live

        console = Console(file=stream, highlight=False)
        tasks = max(2, min(_MAX_TASKS, console.height // 2 - 2))  # two lines each on a narrow terminal
        with Live(
            get_renderable=lambda: build_progress_table(progress, max_tasks=tasks),
            console=console,
            refresh_per_second=8,
            transient=True,
        ):
            yield
        return
    with _call_every(LINE_INTERVAL_S, lambda: print(format_progress_line(progress), file=stream, flush=True)):
        yield
    print(format_progress_line(progress), file=stream, flush=True)


@contextmanager
def _call_every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(seconds):
            act()

    thread = threading.Thread(target=work, name="assay-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


_STAGE_LABELS = {
    "plan": "planning",
    "open": "loading the model",
    "ask": "running",
    "summarise": "computing results",
}


def format_progress_line(progress: RunProgress) -> str:
    """Return the progress of the whole run in one line.

    >>> format_progress_line(RunProgress(stage="open"))
    'loading the model  0/0 documents'
    """
    stage = _STAGE_LABELS.get(progress.stage, progress.stage)
    pieces = [f"{stage}  {progress.done}/{progress.total} documents"]
    if progress.rate > 0 and progress.stage != "done":
        pieces.append(f"{progress.rate:.1f}/s")
    if progress.eta_s is not None and progress.stage == "ask":
        pieces.append(f"ETA {format_eta(progress.eta_s)}")
    if progress.stage == "ask" and progress.pause_s >= 1:
        pieces.append(f"rate limited, next try in {format_eta(progress.pause_s)}")
    if progress.cached:
        pieces.append(f"{progress.cached} responses from the cache")
    if used := format_tokens(progress.tokens, progress.seconds):
        pieces.append(used)
    for name, judge in progress.judges.items():
        pieces.append(f"{label_service(name)}: {_format_judge(judge)}")
    failures = ", ".join(f"{count} {kind}" for kind, count in sorted(progress.failures.items()))
    if failures:
        pieces.append(f"failed: {failures}")
    return "  ".join(pieces)


def _format_judge(judge: JudgeProgress) -> str:
    counts = {
        "asked": judge.asked,
        "cached": judge.cached,
        "waiting": judge.in_flight,
        "failed": judge.failed,
    }
    text = ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "no requests yet"
    used = format_tokens(judge.tokens)
    return f"{text}, {used}" if used else text


def format_tokens(count: TokenCount, seconds: float | None = None) -> str:
    """Format input and output tokens, tokens per second and cost.

    >>> format_tokens(TokenCount(input_tokens=120_000, output_tokens=900, cost_usd=0.25, priced=3), 10.0)
    '120k+900 tokens (12.1k/s) $0.25'
    >>> format_tokens(TokenCount(input_tokens=500, output_tokens=900, reasoning_tokens=850))
    '500+900 tokens, 850 of them reasoning'
    """
    total = count.input_tokens + count.output_tokens
    if not total and not count.priced:
        return ""
    rate = f" ({format_count(total / seconds)}/s)" if seconds else ""
    reasoning = (
        f", {format_count(count.reasoning_tokens)} of them reasoning" if count.reasoning_tokens else ""
    )
    cost = f" {format_dollars(count.cost_usd)}" if count.priced else " cost unknown" if count.unpriced else ""
    return f"{format_count(count.input_tokens)}+{format_count(count.output_tokens)} tokens{reasoning}{rate}{cost}"


_COLUMNS = (
    Column(wrap=True),
    Column(fold=3, is_drawing=True),
    Column(justify="right"),
    Column(fold=1),
    Column(fold=2),
)
"""Task, bar, documents, running score, problems."""


def build_progress_table(progress: RunProgress, *, max_tasks: int = _MAX_TASKS) -> RenderableType:
    """Build a table with a progress bar for each task; of many tasks, the unfinished ones."""
    from rich.console import Group
    from rich.markup import escape
    from rich.text import Text

    table = TextTable(columns=_COLUMNS, header=False)
    unfinished = [task for task in progress.tasks.values() if task.done < task.total]
    finished = [task for task in progress.tasks.values() if task.done >= task.total]
    shown = finished[-max(2, max_tasks - len(unfinished)) :] + unfinished[:max_tasks]
    for task in shown:
        table.add_row(
            escape(task.name),
            _draw_bar(task),
            f"{task.done}/{task.total}",
            escape(format_running_score(task)),
            format_problems(task),
        )
    hidden = len(progress.tasks) - len(shown)
    if hidden:
        table.add_row(f"… and {hidden} more")
    return Group(table, Text(format_progress_line(progress), style="dim"))


def _draw_bar(task: TaskProgress) -> str:
    """Return a progress bar as markup: green when all documents are done."""
    done = _BAR_WIDTH * min(task.done, task.total) // max(task.total, 1)
    colour = "green" if task.done >= task.total else "magenta"
    return f"[{colour}]{'━' * done}[/][bright_black]{'━' * (_BAR_WIDTH - done)}[/]"


def format_running_score(task: TaskProgress) -> str:
    """Format the running score with its standard error."""
    if task.mean is None:
        return ""
    error = "" if task.stderr is None else f" ± {task.stderr:.3f}"
    return f"{task.metric} {task.mean:.3f}{error}"


def format_problems(task: TaskProgress) -> str:
    """Format the number of documents that ended without a score; empty if there are none."""
    pieces = []
    for ending in ENDINGS:
        count = task.endings[ending]
        if count and ending not in ("scored", "skipped"):
            colour = "red" if ending in ("failed", "judge-failed") else "yellow"
            pieces.append(f"[{colour}]{count} {ending}[/{colour}]")
    return ", ".join(pieces)


def format_eta(seconds: float) -> str:
    """Format a remaining time, rounded to minutes from 90 seconds on.

    >>> format_eta(42), format_eta(600), format_eta(7300)
    ('42 s', '10 min', '2 h 2 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
