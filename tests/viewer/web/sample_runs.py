"""Runs for the tests of the viewer: every kind of document, two models that disagree, and one hostile answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image as Pictures
from tests.making import Function, write_choices, write_task
from tests.making_media import make_wav, write_video

import assay
from assay.core.records.responses import Failure, LogProbability, Response, Tokens
from assay.store.runs.run import Run
from assay.testing import ScriptedModel

HOSTILE = "<script>window.stolen = 1</script><img src=x onerror='window.stolen = 2'><b>17</b> & \"18\""
"""A response that tries to run a script in a page."""

SUMS = 130
MEDIA_HELPERS = """
def doc_to_visual(doc):
    return [doc["file"]]

def doc_to_text(doc):
    return doc["question"]
"""


class Speaker(ScriptedModel):
    """A scripted model with audio and image input."""

    def __init__(self, wrong_every: int, *, name: str) -> None:
        super().__init__(self._say, name=name)
        self._wrong_every = wrong_every

    async def identify(self) -> dict[str, str]:
        return {"name": self.name, "revision": str(self._wrong_every)}

    def _say(self, request: Any) -> Any:
        if hasattr(request, "continuation"):
            total = -1.0 if request.index == request.document % 2 else -2.0
            value = LogProbability(total, request.index == 0)
            return Response(request_id="", value=value, tokens=Tokens((request.continuation,), (total,)))
        if request.task != "sums":
            return "red" if request.document == 0 else "a tone"
        if request.document == 17:
            pieces = (HOSTILE[:20], HOSTILE[20:], "\n", "")
            tokens = Tokens(pieces, (-0.01, -3.0, -9.5, -0.2))
            return Response(request_id="", value=HOSTILE, tokens=tokens)
        if request.document == 23:
            return Failure(request_id="", kind="server error", message="503 <i>later</i>")
        off = 1 if request.document % self._wrong_every == 0 else 0
        return f"I add one to {request.document}.\nThe answer is {request.document + 1 + off}."


def write_tasks(folder: Path) -> list[str]:
    """Write tasks: sums with few-shot examples, a filter and categories; choices; an image and an audio file."""
    rows = [
        {
            "question": f"What is {n} + 1?",
            "answer": str(n + 1),
            "level": "odd" if n % 2 else "even",
            "word": "zebra" if n == 41 else "horse",
        }
        for n in range(SUMS)
    ]
    steps = [
        {"function": "regex", "regex_pattern": r"answer is (\d+)"},
        {"function": "take_first"},
    ]
    sums = write_task(
        folder, "sums", rows, filter_list=[{"name": "find", "filter": steps}], num_fewshot=2,
        fewshot_split="test",
    )  # fmt: skip
    picture, sound = folder / "red.png", folder / "tone.wav"
    Pictures.new("RGB", (64, 48), "red").save(picture)
    sound.write_bytes(make_wav(0.3))
    media = [
        {"question": "What colour is it?", "answer": "red", "file": str(picture)},
        {"question": "What do you hear?", "answer": "a tone", "file": str(sound)},
    ]
    shown = write_task(
        folder / "media", "media", media, helpers=MEDIA_HELPERS,
        doc_to_visual=Function("utils.doc_to_visual"), doc_to_text=Function("utils.doc_to_text"),
    )  # fmt: skip
    return [str(sums), str(write_choices(folder, rows=8)), str(shown)]


def make_video_run(folder: Path) -> Run:
    """Make a run with one video in a format that browsers play."""
    film = write_video(folder / "grey.mp4", codec="libvpx-vp9")
    task = write_task(
        folder / "tasks", "films", [{"question": "What happens?", "answer": "a tone", "file": str(film)}],
        helpers=MEDIA_HELPERS, doc_to_visual=Function("utils.doc_to_visual"),
        doc_to_text=Function("utils.doc_to_text"),
    )  # fmt: skip
    model = ScriptedModel(lambda request: "it becomes lighter")
    return assay.run(model=model, tasks=[str(task)], no_cache=True, output_path=str(folder / "runs"))


def make_runs(folder: Path) -> tuple[Run, Run]:
    """Make two runs of the same tasks, the second slightly better."""
    tasks = write_tasks(folder / "tasks")
    made = []
    for name, wrong_every in (("first-model", 4), ("second-model", 9)):
        model = Speaker(wrong_every, name=name)
        made.append(
            assay.run(
                model=model, tasks=tasks, no_cache=True, output_path=str(folder / "runs"), max_failures=1.0
            )
        )
    return made[0], made[1]
