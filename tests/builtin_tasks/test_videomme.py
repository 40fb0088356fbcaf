"""Video-MME: videos by their name, the letter in a response, per cents by kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.builtin_tasks.fake_hub import columns, helper, put_dataset, run_task
from tests.builtin_tasks.recorded import Recorded
from tests.making_media import write_video

videomme = helper("videomme")

REQUEST = (
    "Select the best answer to the following multiple-choice question based on the video and the subtitles. "
    "Respond with only the letter (A, B, C, or D) of the correct option."
)
OPTIONS = ["A. red", "B. blue", "C. green", "D. gold"]


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("B", "B"),
        ("B.", "B"),
        ("B. blue", "B"),
        ("(B) blue", "B"),
        ("It is B", "B"),
        ("The answer is C, as it is green.", "C"),
        ("My choice is D or so it seems", "D"),
        ("(A) or rather (C) I think", "C"),
        ("maybe A: red", "A"),
        ("Because of the Dog", "D"),  # nothing better: any capital among the four
        ("答案是B吧", "B"),
        ("no idea", ""),
        ("", ""),
        ("...", ""),
    ],
)
def test_a_letter_is_read(response: str, letter: str) -> None:
    assert videomme.read_letter(response) == letter


def test_a_video_is_found_by_its_name_in_three_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    folder = tmp_path / "videomme" / "data"
    folder.mkdir(parents=True)
    for name in ("one.mp4", "two.MP4", "three.mkv"):
        (folder / name).touch()
        assert videomme.videomme_doc_to_visual({"videoID": name.partition(".")[0]}) == [str(folder / name)]
    with pytest.raises(FileNotFoundError, match=r"four\.mp4"):
        videomme.videomme_doc_to_visual({"videoID": "four"})


def rows() -> list[dict[str, Any]]:
    kinds = [
        ("short", "Knowledge", "Law"),
        ("long", "Knowledge", "Law"),
        ("medium", "Sports Competition", "Football"),
    ]
    return [
        {
            "videoID": f"clip{at // 2}",
            "question_id": f"{at:03}-1",
            "duration": kinds[at // 2][0],
            "domain": kinds[at // 2][1],
            "sub_category": kinds[at // 2][2],
            "task_type": ("OCR Problems", "Counting Problem")[at % 2],
            "question": f"Question {at}?",
            "options": OPTIONS,
            "answer": "ABCD"[at % 4],
        }
        for at in range(6)
    ]  # fmt: skip


def put_videos(root: Path, names: Sequence[str]) -> None:
    """The questions, and these videos."""
    pytest.importorskip("av", reason="videos are written with the `av` package")
    texts = [name for name in rows()[0] if name != "options"]
    features = columns(**dict.fromkeys(texts, "string"), options="string[]")
    put_dataset(root, "lmms-eval/Video-MME", rows(), features=features)
    for name in names:
        write_video(root / "lmms-eval/Video-MME/data" / f"{name}.mp4")


def test_a_run_reports_per_cent_and_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    put_videos(tmp_path, ["clip0", "clip1"])  # clip2 is missing
    said = iter(["A", "It is B", "C", "A"])  # wanted: A, B, C, D; and two without a video
    results, asked = run_task("videomme", tmp_path, lambda request: next(said))
    assert results["videomme_perception_score,none"] == 75.0
    assert results["videomme_duration_score,none"] == {"short": 100.0, "long": 50.0}
    assert results["videomme_category_score,none"] == {"Knowledge": 75.0}
    assert results["videomme_sub_category_score,none"] == {"Law": 75.0}
    assert results["videomme_task_score,none"] == {"Counting Problem": 50.0, "OCR Problems": 100.0}
    choices = "\n".join(OPTIONS)
    ending = "\nAnswer with the option's letter from the given choices directly."
    assert asked[0].prompt.text == f"{REQUEST}\nQuestion 0?\n{choices}\n{ending}"
    assert len(asked) == 4


def test_durations_come_from_short_to_long() -> None:
    judged = [{"duration": name, "score": 1.0} for name in ("long", "short", "other", "medium")]
    assert list(videomme.videomme_by_duration(judged)) == ["short", "medium", "long", "other"]


@pytest.mark.parity
def test_it_asks_and_scores_as_lmms_eval_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    Recorded("videomme", tmp_path).check_everything("videomme_perception_score")
