"""Runs with images, audio and videos."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.making import Function, write_task
from tests.making_media import make_wav, read_frame_numbers, write_video

import assay
from assay.core.records.messages import Audio, Media, Video
from assay.core.records.requests import Request
from assay.media import frames, waveform
from assay.testing import ScriptedModel

EXAMPLES = Path(__file__).parents[2] / "examples"
HUB = Path(os.environ.get("ASSAY_SHARED", Path(__file__).parents[3] / "shared")) / "hub"


def require_packages(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def require_dataset(dataset: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not (HUB / dataset).is_dir(), reason=f"no shared folder with {dataset}")


class RecordingModel(ScriptedModel):
    """Answers with the frames it was shown, two per second, and decodes them ahead."""

    def __init__(self) -> None:
        super().__init__(self._say, window=4)
        self.prepared = 0

    def prepare(self, part: Media) -> None:
        assert isinstance(part, Video)
        frames(part, fps=2)
        self.prepared += 1

    def _say(self, request: Request) -> str:
        (part,) = request.prompt.media
        assert isinstance(part, Video)
        return " ".join(str(number) for number in read_frame_numbers(frames(part, fps=2)))


VIDEO_HELPERS = """
def doc_to_visual(doc):
    return [doc["video"]]

def doc_to_messages(doc):
    part = {"type": "video", "url": doc["video"], "start_time": doc["start"], "end_time": doc["end"]}
    return [{"role": "user", "content": [part, {"type": "text", "text": doc["question"]}]}]
"""


@require_packages("av")
def test_a_video_task_shows_the_segment_its_messages_name(workspace: Path) -> None:
    path = str(write_video(workspace / "x.mp4"))
    broken = workspace / "broken.mp4"
    broken.write_bytes(b"\x00" * 100)
    rows: list[dict[str, object]] = [
        {"question": "Which?", "answer": "0 5 10 15", "video": path, "start": None, "end": None},
        {"question": "Which?", "answer": "10 15", "video": path, "start": 1.0, "end": None},
        {"question": "Which?", "answer": "5 10", "video": path, "start": 0.5, "end": 1.2},
        {"question": "And now?", "answer": "5 10", "video": path, "start": 0.5, "end": 1.2},
        {"question": "Which?", "answer": "", "video": str(broken), "start": None, "end": None},
    ]
    task = write_task(
        workspace, "watch", rows, helpers=VIDEO_HELPERS, doc_to_text="{{question}}",
        doc_to_visual=Function("utils.doc_to_visual"), doc_to_messages=Function("utils.doc_to_messages"),
    )  # fmt: skip
    model = RecordingModel()
    finished = assay.run(model=model, tasks=[str(task)])
    assert finished.outcomes("watch") == {"scored": 4, "failed": 1}
    assert finished.results["watch"]["exact_match,none"] == 1.0
    assert model.prepared <= 3, "one stretch is decoded once for both questions about it"
    ((why,),) = finished.journal.query("SELECT why FROM judged WHERE outcome = 'failed'")
    assert why.startswith("bad media: ") and str(broken) in why


@require_packages("soundfile", "soxr")
def test_an_audio_task_resamples_to_the_rate_of_the_model(workspace: Path) -> None:
    (workspace / "x.wav").write_bytes(make_wav(0.5, 44_100))
    rows = [{"question": "How long?", "answer": "8000", "sound": str(workspace / "x.wav")}]

    def answer(request: Request) -> str:
        (part,) = request.prompt.media
        assert isinstance(part, Audio)
        return str(len(waveform(part, rate_hz=16_000)))

    task = write_task(workspace, "hear", rows, doc_to_audio="sound", doc_to_text="{{question}}")
    finished = assay.run(model=ScriptedModel(answer), tasks=[str(task)])
    assert finished.results["hear"]["exact_match,none"] == 1.0


@require_packages("rapidocr_onnxruntime")
def test_a_model_that_requires_images_rejects_a_task_without_them(workspace: Path) -> None:
    with pytest.raises(assay.AssayError, match="it needs image in the prompt"):
        assay.run(model="ocr", tasks=[str(write_task(workspace))])


# --- the examples ----------------------------------------------------------------------------------


@require_packages("av", "datasets")
@require_dataset("assay/clips")
def test_the_clips_example_reads_every_clip(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_DATA", str(HUB))
    seen: list[int] = []

    def answer(request: Request) -> str:
        (part,) = request.prompt.media
        assert isinstance(part, Video)
        clip = frames(part, count=8)
        assert clip.times_s[-1] <= 2.0
        seen.append(len(clip.frames))
        return "Wave."

    finished = assay.run(model=ScriptedModel(answer), tasks=[str(EXAMPLES / "clips")])
    assert seen == [8] * 6
    assert finished.results["clips"]["exact_match,none"] == 0.5


@require_packages("moonshine_voice", "soundfile", "datasets")
@require_dataset("assay/asr_samples")
def test_the_speech_example_has_a_low_error_rate(workspace: Path) -> None:
    finished = assay.run(
        model="speech",
        tasks=[str(EXAMPLES / "speech")],
        data_root=str(HUB),
        samples={"asr_samples": [0, 2, 6]},
    )
    assert finished.outcomes("asr_samples") == {"scored": 3}
    assert finished.results["asr_samples"]["word_error_rate,none"] < 0.2


@require_packages("rapidocr_onnxruntime", "datasets")
@require_dataset("assay/sroie")
@pytest.mark.slow
def test_the_receipts_example_extracts_the_fields(workspace: Path) -> None:
    finished = assay.run(
        model="ocr",
        model_args={"threads": 1},
        tasks=[str(EXAMPLES / "receipts")],
        data_root=str(HUB),
        limit=1,
    )
    assert finished.outcomes("sroie") == {"scored": 1}
    assert finished.results["sroie"]["total,none"] == 1.0
    assert finished.results["sroie"]["lines,none"] > 0.5
