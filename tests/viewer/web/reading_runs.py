"""A run for the tests of a document's page: markdown, mathematics, thinking, tool calls, rounds, judges, a video."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from tests.dialogues import halve, write_guessing
from tests.making import Function, make_model, write_task
from tests.making_media import write_video
from tests.viewer.web.sample_runs import MEDIA_HELPERS, Speaker

import assay
from assay.core.records.responses import Failure, Response
from assay.store.runs.run import Run

MARKDOWN = r"""## Solution

The area is $A = \pi r^2$ with $r = 3$:

$$\int_0^{2\pi}\frac{r^2}{2}\,d\theta = 9\pi$$

1. **Square** the radius.
2. Multiply by `pi`.

```python
def area(radius: float) -> float:
    return 3.14159 * radius ** 2  # a circle
```

| radius | area |
|---|---|
| 3 | 28.27 |

It costs $5 today and $6 tomorrow. The answer is 28."""
HOSTILE_MARKDOWN = r"""<img src=x onerror="window.stolen = 1"> [click](javascript:alert(1)) [site](https://example.com/a)
![track](https://example.com/pixel.png)

<script>window.stolen = 2</script>

$\href{javascript:window.stolen=3}{x}$ and $\htmlData{a=b}{y}$ and `$not math$`

```html"><img src=x onerror=window.stolen=4>
<b>bold</b>
```

The answer is 7."""
TOOLS = """<think>I should look it up.
The table has it.</think>I call a function.

<tool_call>{"name": "look_up", "arguments": {"word": "seven"}}</tool_call>

The answer is 7."""
REASONING = "First I *square* the radius, then I multiply."
VERDICT = "The answer has the right number.\n\nVERDICT: CORRECT"


def make_reading_run(folder: Path) -> Run:
    """Make a run of four tasks; the documents of `worked` have rich answers."""
    rows = [
        {"question": "What is the area of a circle with radius 3, $r = 3$?", "answer": "28"},
        {"question": "Which number is it?", "answer": "7"},
        {"question": "Look it up.", "answer": "7"},
        {"question": "What is long?", "answer": "12"},
    ]
    texts = [MARKDOWN, HOSTILE_MARKDOWN, TOOLS, _write_long_answer()]
    steps = [{"function": "regex", "regex_pattern": r"answer is (\d+)"}, {"function": "take_first"}]
    judged = {"metric": "correct", "judge": {"kind": "binary"}}
    exact = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}
    worked = write_task(
        folder / "tasks", "worked", rows, filter_list=[{"name": "find", "filter": steps}],
        metric_list=[exact, judged],
    )  # fmt: skip
    tasks = [str(worked), str(write_guessing(folder / "tasks", documents=2))]
    if find_spec("av"):
        shown = [write_video(folder / name) for name in ("grey.avi", "grey.mp4")]
        questions = [{"question": "What happens?", "answer": "x", "file": str(film)} for film in shown]
        films = write_task(
            folder / "tasks" / "films", "films", questions,
            helpers=MEDIA_HELPERS, doc_to_visual=Function("utils.doc_to_visual"),
            doc_to_text=Function("utils.doc_to_text"),
        )  # fmt: skip
        tasks.append(str(films))
    judge = make_model(lambda request: VERDICT, name="careful-judge")
    model = _Reader(texts)
    return assay.run(
        model=model, tasks=tasks, judge=[judge], no_cache=True, output_path=str(folder / "runs"), max_failures=1.0
    )  # fmt: skip


def _write_long_answer() -> str:
    part = "The *value* of $x_{}$ is `{}`, and **this** goes on for a while.\n\n"
    return "".join(part.format(n, n) for n in range(460))[:30_000] + "\n\nThe answer is 12."


class _Reader(Speaker):
    """A scripted model whose answers to `worked` are given."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__(4, name="reading-model")
        self._texts = texts

    def _say(self, request: Any) -> Any:
        if request.task == "guessing":
            return halve(request)
        if request.task != "worked":
            return "it becomes lighter"
        reasoning = REASONING if request.document == 0 else None
        return Response(request_id="", value=self._texts[request.document], reasoning=reasoning)


def make_group_run(folder: Path) -> Run:
    """Make a run of a group of 24 tasks with repeated answers and two kinds of failures."""
    names = [f"subject_{n:02d}" for n in range(24)]
    for n, name in enumerate(names):
        rows = [
            {"question": f"{n} {at}", "answer": "yes", "image": f"pictures/{at % 2}.png"} for at in range(6)
        ]
        write_task(folder / "tasks", name, rows, generation_kwargs={"temperature": 0.7, "do_sample": True})
    group = {
        "group": "subjects",
        "task": names,
        "aggregate_metric_list": [{"metric": "exact_match", "aggregation": "mean", "weight_by_size": True}],
    }
    (folder / "tasks" / "subjects.yaml").write_text(yaml.safe_dump(group), "utf-8")

    def answer(request: Any) -> Any:
        number = int(request.task.rpartition("_")[2])
        if number == 3:
            kind = "timeout" if request.document % 2 else "server error"
            return Failure(request_id="", kind=kind, message="no reply")
        return "yes" if request.document * 4 < number else "no"

    return assay.run(
        model=make_model(answer, name="group-model"), tasks=["subjects"], include_path=[str(folder / "tasks")],
        repeats=2, no_cache=True, output_path=str(folder / "runs"), max_failures=1.0,
    )  # fmt: skip
