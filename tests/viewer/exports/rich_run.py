"""A run with one task of each kind: repeats and filters, choices, texts, tools, agents and images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.making import Function, write_choices, write_task, write_texts
from tests.making_media import make_png

import assay
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, LogProbability, Response, Usage
from assay.core.records.tools import ToolCall
from assay.testing import ScriptedModel

HELPERS = '''
class Counter:
    def __init__(self, context):
        self.wanted, self.value = context.document["wanted"], 0

    def tools(self):
        return [self.add]

    def add(self, amount: int) -> int:
        """Add a number."""
        self.value += amount
        return self.value

    def state(self):
        return {"value": self.value}

    def close(self):
        pass

    def expected_state(self):
        return {"value": self.wanted}


def doc_to_visual(doc):
    from PIL import Image

    return [Image.open(doc["image"])]
'''
ABILITIES: Any = frozenset({"generate", "chat", "tools", "likelihood", "rolling", "image"})
SUMS = [{"question": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(5)]


def answer(request: Request) -> Any:
    """Answer the tasks of the run: document 2 of `sums` fails, 3 is wrong at the second repeat, 4 has reasoning."""
    if not isinstance(request, Generate):
        index = getattr(request, "index", 0)
        return LogProbability(-1.0 if index == 1 else -2.5, True)
    usage = Usage(input_tokens=12, output_tokens=3, cached_tokens=2, cost_usd=0.25)
    if request.task == "counter":
        wanted = 1 + request.document
        if request.round < wanted:
            call = ToolCall("add", '{"amount": 1}', f"c{request.round}")
            return Response(request_id="", value="I add.", tool_calls=(call,), usage=usage, finish="stop")
        return Response(request_id="", value=f"It is {wanted}.", usage=usage, finish="stop")
    if request.task == "pictures":
        return Response(request_id="", value="red", usage=usage, finish="length")
    if request.document == 2:
        return Failure(request_id="", kind="server error", message="503 <b>down</b>")
    right = str(request.document + 1)
    value = "<i>\ud800" if request.document == 3 and request.repeat == 1 else right
    reasoning = "one more" if request.document == 4 else None
    return Response(request_id="", value=value, usage=usage, finish="stop", reasoning=reasoning)


def make_rich_run(folder: Path, **options: Any) -> assay.Run:
    """Run all tasks in a folder."""
    image = folder / "red.png"
    folder.mkdir(parents=True, exist_ok=True)
    image.write_bytes(make_png())
    filters = [{"name": name, "filter": [{"function": "take_first"}]} for name in ("strict", "flexible")]
    tasks = [
        write_task(
            folder,
            "sums",
            SUMS,
            repeats=2,
            filter_list=filters,
            generation_kwargs={"until": ["\n"], "max_gen_toks": 16, "temperature": 0.5, "do_sample": True},
        ),
        write_choices(folder, "choices", 4, metric_list=[{"metric": "acc"}, {"metric": "acc_norm"}]),
        write_texts(folder, "texts"),
        write_task(
            folder,
            "counter",
            [{"wanted": 1}, {"wanted": 2}],
            helpers=HELPERS,
            output_type="agent",
            doc_to_text="Add up to {{wanted}}.",
            doc_to_target=None,
            environment=Function("utils.Counter"),
            repeats=1,  # agents have several by default
            metric_list=[{"metric": "task_success"}],
        ),
        write_task(
            folder,
            "pictures",
            [{"question": "Which colour?", "answer": "red", "image": str(image)}],
            doc_to_visual=Function("utils.doc_to_visual"),
            doc_to_text="{{question}}",
        ),
    ]
    model = ScriptedModel(answer, abilities=ABILITIES, name="org/tiny")
    return assay.run(
        model=model,
        tasks=[str(path) for path in tasks],
        no_cache=True,
        output_path=str(folder / "out"),
        **options,
    )
