"""Write the logs in `recorded/` with inspect_ai itself: `python -m tests.engine.imports.record_inspect_logs FOLDER`.

A model that answers from a table (`mockllm`) takes two tasks: `sums` with tools, reasoning, an image, an error and two epochs, as an
`.eval` file, and `letters` with choices, as JSON. Needs inspect_ai.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLv"
    "AAAAAElFTkSuQmCC"
)


def reply(messages: Any, tools: Any, tool_choice: Any, config: Any) -> Any:
    """Answer one call; 2 + 2 calls the tool first."""
    from inspect_ai.model import ContentReasoning, ContentText, ModelOutput, ModelUsage

    last = messages[-1]
    text = "".join(message.text for message in messages if message.role == "user")
    content: Any = "ANSWER: 7"
    if "2 + 2" in text and last.role != "tool":
        output = ModelOutput.for_tool_call(
            "mockllm/model", "add", {"x": 2, "y": 2}, content="I call the tool."
        )
        output.usage = ModelUsage(input_tokens=20, output_tokens=8, total_tokens=28)
        return output
    if last.role == "tool":
        content = f"ANSWER: {last.text}"
    elif "3 + 3" in text:
        content = [ContentReasoning(reasoning="three and three"), ContentText(text="ANSWER: 6")]
    elif "colour" in text:
        content = "ANSWER: red"
    elif "Which" in text:
        content = "ANSWER: B"
    output = ModelOutput.from_content("mockllm/model", content)
    output.usage = ModelUsage(
        input_tokens=6, output_tokens=3, total_tokens=13, input_tokens_cache_read=4, total_cost=0.5
    )
    return output


def build_tasks() -> Any:
    """Return the two tasks."""
    from inspect_ai import Epochs, Task
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ChatMessageUser, ContentImage, ContentText
    from inspect_ai.scorer import choice, includes, match
    from inspect_ai.solver import generate, multiple_choice, solver, system_message, use_tools
    from inspect_ai.tool import tool

    @tool  # type: ignore[untyped-decorator]
    def add() -> Any:
        async def execute(x: int, y: int) -> str:
            """Add two numbers.

            Args:
                x: First number.
                y: Second number.
            """
            return str(x + y)

        return execute

    @solver  # type: ignore[untyped-decorator]
    def fail_on(word: str) -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            if word in state.input_text:
                raise RuntimeError(f"cannot read <{word}>")
            return state

        return solve

    image = ChatMessageUser(content=[ContentText(text="Which colour?"), ContentImage(image=PIXEL)])
    sums = Task(
        name="sums",
        dataset=[
            Sample(id="tool", input="What is 2 + 2?", target="4", metadata={"level": 1}),
            Sample(id="reasoning", input="What is 3 + 3?", target="6", metadata={"level": 1}),
            Sample(id="wrong", input="What is 4 + 4?", target=["8", "eight"]),
            Sample(id="broken", input="What is error + 1?", target="?"),
            Sample(id="image", input=[image], target="red"),
        ],
        solver=[system_message("Answer in one line."), use_tools(add()), fail_on("error"), generate()],
        scorer=[match(), includes()],
        epochs=Epochs(2, "mean"),
        fail_on_error=False,
    )
    letters = Task(
        name="letters",
        dataset=[
            Sample(id=1, input="Which is even?", choices=["1", "2", "3"], target="B"),
            Sample(id=2, input="Which is odd?", choices=["1", "2"], target="A"),
        ],
        solver=[multiple_choice()],
        scorer=choice(),
    )
    return sums, letters


def record(folder: Path) -> list[Path]:
    """Run the tasks and write their logs, without the paths in tracebacks."""
    from inspect_ai import eval as run_tasks
    from inspect_ai.log import write_eval_log
    from inspect_ai.model import get_model

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    model = get_model("mockllm/model", custom_outputs=reply, memoize=False)
    for task, name in zip(build_tasks(), ("sums.eval", "letters.json"), strict=True):
        (log,) = run_tasks(task, model=model, log_dir=str(folder / "logs"), display="none", max_samples=1)
        for sample in log.samples or ():
            sample.events = [event for event in sample.events if event.event not in ("logger", "error")]
            if sample.error is not None:
                sample.error.traceback = sample.error.traceback_ansi = sample.error.message
        write_eval_log(log, str(folder / name))
        written.append(folder / name)
    return written


if __name__ == "__main__":
    for file in record(Path(sys.argv[1])):
        print(file)
