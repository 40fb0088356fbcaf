"""Live progress: a table that redraws itself on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from assay.core.endings import ENDINGS
from assay.core.progress import JudgeProgress, RunProgress, TaskProgress, TokenCount
from assay.viewer.tables import dollars

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["show_progress"]

_LINE_EVERY_S = 5.0
_SHOWN_TASKS = 12


@contextmanager
def show_progress(progress: RunProgress, stream: TextIO | None = None) -> Iterator[None]:
    """Show the counters while the block runs: redrawn on a terminal, plain lines elsewhere."""
    stream = sys.stderr if stream is None else stream
    if stream.isatty():
        from rich.console import Console
        from rich.live import Live

        with Live(
            get_renderable=lambda: render(progress),
            console=Console(file=stream),
            refresh_per_second=8,
            transient=True,
        ):
            yield
        return
    with _every(_LINE_EVERY_S, lambda: print(line(progress), file=stream, flush=True)):
        yield
    print(line(progress), file=stream, flush=True)


@contextmanager
def _every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
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


def line(progress: RunProgress) -> str:
    """The whole run in one line.

    >>> line(RunProgress(stage="open"))
    'open  0/0 documents'
    """
    pieces = [f"{progress.stage}  {progress.done}/{progress.total} documents"]
    if progress.rate > 0 and progress.stage != "done":
        pieces.append(f"{progress.rate:.1f}/s")
    if progress.eta_s is not None and progress.stage == "ask":
        pieces.append(f"ETA {duration(progress.eta_s)}")
    if progress.cached:
        pieces.append(f"{progress.cached} responses reused")
    if used := tokens(progress.tokens, progress.seconds):
        pieces.append(used)
    for name, judge in progress.judges.items():
        pieces.append(f"judge {name}: {_judged(judge)}")
    failures = ", ".join(f"{count} {kind}" for kind, count in sorted(progress.failures.items()))
    if failures:
        pieces.append(f"failed: {failures}")
    return "  ".join(pieces)


def _judged(judge: JudgeProgress) -> str:
    counts = {"asked": judge.asked, "reused": judge.cached, "waiting": judge.waiting, "failed": judge.failed}
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "nothing yet"
    used = tokens(judge.tokens)
    return f"{said}, {used}" if used else said


def tokens(count: TokenCount, seconds: float | None = None) -> str:
    """Tokens read and written, how fast, and what they cost.

    >>> tokens(TokenCount(read=120_000, written=900, cost_usd=0.25, priced=3), 10.0)
    '120k+900 tokens (12.1k/s) $0.25'
    """
    total = count.read + count.written
    if not total and not count.priced:
        return ""
    rate = f" ({amount(total / seconds)}/s)" if seconds else ""
    cost = f" {dollars(count.cost_usd)}" if count.priced else " cost unknown" if count.unpriced else ""
    return f"{amount(count.read)}+{amount(count.written)} tokens{rate}{cost}"


def amount(number: float) -> str:
    """A number in few letters.

    >>> amount(12), amount(1234), amount(2_500_000)
    ('12', '1.23k', '2.5M')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"


def render(progress: RunProgress) -> RenderableType:
    """The counters as a table with bars."""
    from rich.console import Group
    from rich.markup import escape
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(5):
        table.add_column(no_wrap=True)
    unfinished = [task for task in progress.tasks.values() if task.done < task.total]
    finished = [task for task in progress.tasks.values() if task.done >= task.total]
    shown = finished[-max(2, _SHOWN_TASKS - len(unfinished)) :] + unfinished[:_SHOWN_TASKS]
    for task in shown:
        bar = ProgressBar(total=max(task.total, 1), completed=task.done, width=24)
        table.add_row(
            escape(task.name), bar, f"{task.done}/{task.total}", escape(running(task)), trouble(task)
        )
    hidden = len(progress.tasks) - len(shown)
    if hidden:
        table.add_row(f"… and {hidden} more", "", "", "", "")
    return Group(table, Text(line(progress), style="dim"))


def running(task: TaskProgress) -> str:
    """The running score with its error."""
    if task.mean is None:
        return ""
    error = "" if task.stderr is None else f" ± {task.stderr:.3f}"
    return f"{task.metric} {task.mean:.3f}{error}"


def trouble(task: TaskProgress) -> str:
    """What went wrong so far, if anything."""
    pieces = []
    for ending in ENDINGS:
        count = task.endings[ending]
        if count and ending not in ("scored", "skipped"):
            colour = "red" if ending in ("failed", "judge-failed") else "yellow"
            pieces.append(f"[{colour}]{count} {ending}[/{colour}]")
    return ", ".join(pieces)


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(42), duration(600), duration(7300)
    ('42 s', '10 min', '2 h 2 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
