from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pictures
from tests.making import Function, write_task
from tests.making_media import make_png

import assay
from assay.core.errors import MediaError
from assay.core.records.messages import Image, Media, Message, Prompt, Text, Video
from assay.core.records.requests import Generate, Request, Settings
from assay.core.records.responses import Failure
from assay.engine import run
from assay.engine.running.media_archive import MediaArchive
from assay.engine.running.model_queue import Backlog
from assay.engine.running.prefetch import (
    _THREADS,
    MediaPrefetcher,
    count_decoded_bytes,
    count_media_bytes,
    strip_media,
)
from assay.media import Clip, picture
from assay.testing import ScriptedModel

MB = 2**20


def request(number: int, *media: Media, text: str = "What?") -> Generate:
    prompt = Prompt((Message("user", (*media, Text(f"{text} {number}"))),))
    return Generate(task="t", document=number, prompt=prompt, settings=Settings())


class CountingImage:
    """An image that counts how often it is decoded."""

    def __init__(self, digest: str, *, size: int = 16, held: int = 0) -> None:
        self.loads = 0
        self.size = size
        self.part = Image(digest=digest, load=self._load, source=digest, held_bytes=held)

    def _load(self) -> Any:
        self.loads += 1
        return Pictures.new("RGB", (self.size, self.size))


def wait_until_idle(prefetch: MediaPrefetcher) -> None:
    """Wait until the threads are idle."""
    for _ in range(1000):
        with prefetch._lock:
            if not prefetch._busy and (not prefetch._decode_queue or prefetch._total >= prefetch._budget):
                return
        threading.Event().wait(0.005)
    raise AssertionError("the decoders do not come to rest")


@pytest.fixture
def make_prefetch() -> Any:
    made: list[MediaPrefetcher] = []

    def make(budget: int = MB, model: Any = None) -> MediaPrefetcher:
        made.append(MediaPrefetcher(budget, model or ScriptedModel()))
        return made[-1]

    yield make
    for prefetch in made:
        prefetch.close()


Make = Callable[..., MediaPrefetcher]


def test_prefetching_does_not_change_a_request(make_prefetch: Make) -> None:
    original = request(0, CountingImage("a").part)
    shared = make_prefetch().share([original])[0]
    assert (shared.id, shared.prompt.digest, shared.prompt.text) == (
        original.id,
        original.prompt.digest,
        original.prompt.text,
    )


def test_text_requests_are_unchanged(make_prefetch: Make) -> None:
    requests = [request(0), request(1)]
    assert make_prefetch().share(requests) is requests


def test_media_shared_by_requests_are_decoded_once(make_prefetch: Make) -> None:
    one = CountingImage("a")
    prefetch = make_prefetch()
    shared = prefetch.share([request(number, replace(one.part)) for number in range(5)])
    wait_until_idle(prefetch)
    assert one.loads == 1, "ahead of the model"
    looks = [picture(part) for each in shared for part in each.prompt.media if isinstance(part, Image)]
    assert one.loads == 1
    assert len({id(look) for look in looks}) == 1


def test_media_are_released_after_their_last_use(make_prefetch: Make) -> None:
    one = CountingImage("a")
    prefetch = make_prefetch()
    first, second = prefetch.share([request(0, one.part), request(1, one.part)])
    wait_until_idle(prefetch)
    assert prefetch._total == 16 * 16 * 4
    prefetch.release(first.id)
    assert prefetch._total == 16 * 16 * 4
    prefetch.release(second.id)
    prefetch.release(second.id)
    assert (prefetch._total, prefetch._shared, prefetch._needed) == (0, {}, {})
    with pytest.raises(RuntimeError, match="released"):
        second.prompt.media[0].load()
    assert second.prompt.media[0].keep("size", lambda: 5) == 5, "what is made of it later is not kept"


def test_requests_with_the_same_media_are_grouped(make_prefetch: Make) -> None:
    a, b = CountingImage("a").part, CountingImage("b").part
    mixed = [request(0, a), request(1, b), request(2), request(3, a), request(4, b), request(5, b, a)]
    ordered = make_prefetch().share(mixed)
    assert [one.document for one in ordered] == [0, 3, 1, 4, 5, 2]


def test_segments_of_one_video_are_different_media(make_prefetch: Make) -> None:
    whole = Video(digest="v", load=lambda: "x.mp4")
    prefetch = make_prefetch()
    prefetch.share([request(0, whole, replace(whole, start_s=1.0))])
    assert len(prefetch._shared) == 2


def test_decoding_ahead_is_limited_by_the_memory_budget(make_prefetch: Make) -> None:
    pictures = [CountingImage(str(number)) for number in range(20)]
    prefetch = make_prefetch(3 * 1024)
    shared = prefetch.share([request(number, one.part) for number, one in enumerate(pictures)])
    wait_until_idle(prefetch)
    ahead = sum(one.loads for one in pictures)
    assert 3 <= ahead <= 4, "one thread may be at work when the budget is reached"
    assert [one.loads for one in pictures[:ahead]] == [1] * ahead, "in the order of the requests"
    for each in shared:
        each.prompt.media[0].load()
        prefetch.release(each.id)
        wait_until_idle(prefetch)
    assert [one.loads for one in pictures] == [1] * 20
    assert prefetch._total == 0


def test_media_that_are_being_decoded_count_toward_the_budget(make_prefetch: Make) -> None:
    entered, proceed = threading.Semaphore(0), threading.Semaphore(0)
    sizes = [100, 100, 800, 800, 800]

    class PreparingModel(ScriptedModel):
        def prepare(self, part: Media) -> None:
            entered.release()
            assert proceed.acquire(timeout=20)
            part.keep("pixels", lambda: np.zeros(sizes.pop(0), np.uint8))

    def count_started() -> int:
        started = 0
        while entered.acquire(timeout=0.2):
            started += 1
        return started

    prefetch = make_prefetch(1000, PreparingModel())
    prefetch.share([request(number, CountingImage(str(number)).part) for number in range(5)])
    assert count_started() == 2, "their size is not known yet"
    proceed.release(2)
    assert count_started() == min(3, _THREADS), "800 bytes are left for media of 100"
    proceed.release(3)


def test_the_model_decides_what_is_prepared_ahead(make_prefetch: Make) -> None:
    class PreparingModel(ScriptedModel):
        def prepare(self, part: Media) -> None:
            part.keep("tiny", lambda: np.zeros(100, np.uint8))

    one = CountingImage("a")
    prefetch = make_prefetch(MB, PreparingModel())
    shared = prefetch.share([request(0, one.part)])[0]
    wait_until_idle(prefetch)
    assert (one.loads, prefetch._total) == (0, 100)
    kept = shared.prompt.media[0].keep("tiny", lambda: pytest.fail("made twice"))
    assert len(kept) == 100


def test_every_access_to_undecodable_media_raises(make_prefetch: Make) -> None:
    tries = []

    def load() -> Any:
        tries.append(1)
        raise MediaError("the picture cannot be read", where="x.png")

    prefetch = make_prefetch()
    broken = Image(digest="a", load=load)
    for each in prefetch.share([request(0, broken), request(1, broken)]):
        with pytest.raises(MediaError, match=r"x\.png"):
            each.prompt.media[0].load()
    assert len(tries) == 1


def test_rendering_waits_while_requests_hold_too_much_memory(make_prefetch: Make) -> None:
    async def work() -> list[str]:
        prefetch = make_prefetch(1000)
        order: list[str] = []
        shared = prefetch.share(
            [request(number, CountingImage(str(number), held=1024).part) for number in range(2)]
        )
        assert prefetch.is_full

        async def produce() -> None:
            await prefetch.wait_for_memory(Backlog(8))
            order.append("rendered")

        task = asyncio.create_task(produce())
        await asyncio.sleep(0)
        for each in shared:
            order.append("answered")
            prefetch.release(each.id)
        await task
        return order

    assert asyncio.run(work()) == ["answered", "answered", "rendered"]


@pytest.mark.parametrize(("held", "expected"), [(0, 256), (1, 256), (1024, 32), (8192, 4), (10**6, 1)])
def test_documents_are_rendered_in_chunks_limited_by_memory(
    make_prefetch: Make, held: int, expected: int
) -> None:
    last = [(request(number, CountingImage(str(number), held=held).part),) for number in range(4)]
    assert make_prefetch(2**18).choose_chunk_size(last, 256) == expected


def test_an_image_in_memory_is_counted_once(make_prefetch: Make) -> None:
    prefetch = make_prefetch()
    prefetch.share([request(0, CountingImage("a", held=1024).part)])
    wait_until_idle(prefetch)
    assert prefetch._total == 1024


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (b"abc", 3),
        (np.zeros(10, np.float32), 40),
        (Pictures.new("RGB", (10, 10)), 400),
        (Pictures.new("F", (10, 10)), 400),
        ((np.zeros(10, np.float32), 16_000), 40),
        (Clip((Pictures.new("L", (10, 10)),) * 3, (0.0, 1.0, 2.0)), 300),
        (Path("x.mp4"), 0),
        (None, 0),
    ],
)
def test_the_size_of_decoded_media_is_known(value: Any, size: int) -> None:
    assert count_decoded_bytes(value) == size


def test_memory_of_requests_is_counted_and_can_be_released() -> None:
    part = CountingImage("a", held=1024).part
    requests: tuple[Request, ...] = (request(0, part), request(1, part), request(2))
    assert count_media_bytes(requests) == 1024
    light = strip_media(requests)
    assert count_media_bytes(light) == 0
    assert [one.id for one in light] == [one.id for one in requests]
    with pytest.raises(RuntimeError, match="released"):
        light[0].prompt.media[0].load()


# --- in a run --------------------------------------------------------------------------------------

BY_PATH = "def doc_to_visual(doc):\n    return [doc['picture']]\n"
OPENED = (
    "from PIL import Image\ndef doc_to_visual(doc):\n    return [Image.open(doc['picture']).convert('RGB')]\n"
)


def write_pictures(folder: Path, count: int, *, broken: int | None = None) -> list[dict[str, str]]:
    """Write images and return rows with two documents per image."""
    rows = []
    for number in range(count):
        path = folder / f"{number // 2}.png"
        path.write_bytes(b"" if number // 2 == broken else make_png("red", (8, 4 + number // 2)))
        rows.append({"question": f"Q{number}", "answer": "yes", "picture": str(path)})
    return rows


def run_images(
    workspace: Path, rows: list[dict[str, str]], model: Any, helpers: str, **options: Any
) -> assay.Run:
    task = write_task(
        workspace, "seen", rows, helpers=helpers, doc_to_visual=Function("utils.doc_to_visual"),
        doc_to_text="{{question}}",
    )  # fmt: skip
    return assay.run(model=model, tasks=[str(task)], **options)


def test_a_run_groups_requests_with_the_same_image(workspace: Path) -> None:
    rows = write_pictures(workspace, 12)
    sizes: list[tuple[int, int]] = []

    def answer(asked: Request) -> str:
        sizes.append(asked.prompt.media[0].load().size)
        return "yes"

    half = rows[::2] + rows[1::2]  # the same image again half a task later
    finished = run_images(workspace, half, ScriptedModel(answer, window=2), BY_PATH)
    assert finished.results["seen"]["exact_match,none"] == 1.0
    assert sizes == [(8, 4 + number // 2) for number in range(12)]


@pytest.mark.parametrize("helpers", [BY_PATH, OPENED])
@pytest.mark.parametrize("megabytes", [0, 1, 1024])
def test_the_memory_budget_does_not_change_results(workspace: Path, helpers: str, megabytes: int) -> None:
    rows = write_pictures(workspace, 40)
    model = ScriptedModel(lambda asked: "yes", window=64)
    finished = run_images(workspace, rows, model, helpers, media_memory_mb=megabytes)
    assert finished.outcomes("seen") == {"scored": 40}
    assert len(model.asked) == 40


def test_broken_and_missing_images_fail_their_documents_with_kind_and_path(workspace: Path) -> None:
    rows = write_pictures(workspace, 6, broken=1)
    rows.append({"question": "Q6", "answer": "yes", "picture": str(workspace / "missing.png")})
    finished = run_images(workspace, rows, ScriptedModel(lambda asked: "yes"), BY_PATH)
    assert finished.outcomes("seen") == {"scored": 4, "failed": 3}
    whys = [why for (why,) in finished.journal.query("SELECT why FROM judged WHERE outcome = 'failed'")]
    assert all(why.startswith("bad media: ") for why in whys)
    assert sum("1.png" in why for why in whys) == 2
    assert sum("missing.png" in why for why in whys) == 1


def test_images_are_decoded_while_the_run_saves_them(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding = threading.Event()
    waited: list[bool] = []

    class PreparingModel(ScriptedModel):
        def prepare(self, part: Media) -> None:
            decoding.set()

    async def save(archive: Any, documents: Any) -> None:
        waited.append(await asyncio.to_thread(decoding.wait, 5))

    monkeypatch.setattr(MediaArchive, "save", save)
    run_images(workspace, write_pictures(workspace, 4), PreparingModel(lambda asked: "yes"), BY_PATH)
    assert waited == [True]


def test_documents_waiting_for_a_barrier_hold_no_images(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    def record_and_strip(requests: Any) -> Any:
        held.append(count_media_bytes(requests))
        return strip_media(requests)

    monkeypatch.setattr(run, "strip_media", record_and_strip)
    rows = write_pictures(workspace, 4)
    task = write_task(
        workspace, "seen", rows, doc_to_visual=Function("utils.doc_to_visual"), doc_to_text="{{question}}",
        helpers=OPENED + BARRIER, filter_list=[
            {"name": "all", "filter": [{"function": "custom", "filter_fn": Function("utils.across")}]}
        ],
    )  # fmt: skip
    finished = assay.run(model=ScriptedModel(lambda asked: "yes"), tasks=[str(task)])
    assert finished.outcomes("seen") == {"scored": 4}
    assert held == [8 * 4 * 4] * 2 + [8 * 5 * 4] * 2


BARRIER = "def across(responses, docs):\n    return [each[0] for each in responses]\n"


@pytest.mark.parametrize("megabytes", [0, 1024])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("helpers", [BY_PATH, OPENED])
def test_a_judge_panel_sees_the_images_of_the_model_even_after_a_resume(
    workspace: Path, helpers: str, across: bool, megabytes: int
) -> None:
    sizes: list[tuple[int, int]] = []
    down = [True]

    def judge(asked: Request) -> Any:
        if down[0]:
            return Failure(request_id="", kind="timeout", message="too slow")
        sizes.append(asked.prompt.media[0].load().size)
        return "VERDICT: CORRECT"

    function = {"function": "custom", "filter_fn": Function("utils.across")}
    task = write_task(
        workspace, "seen", write_pictures(workspace, 20), doc_to_visual=Function("utils.doc_to_visual"),
        doc_to_text="{{question}}", helpers=helpers + BARRIER,
        filter_list=[{"name": "all", "filter": [function]}] if across else None,
        metric_list=[{"metric": "judged", "judge": {"kind": "binary", "media": True}}],
    )  # fmt: skip
    model = ScriptedModel(lambda asked: "yes", window=3)
    options: dict[str, Any] = {"judge": ScriptedModel(judge, name="judge"), "media_memory_mb": megabytes}
    first = assay.run(model=model, tasks=[str(task)], **options)
    assert first.outcomes("seen") == {"judge-failed": 20}
    down[0] = False
    finished = assay.run(model=model, tasks=[str(task)], **options)
    assert finished.outcomes("seen") == {"scored": 20}
    assert len(model.asked) == 20
    assert sorted(sizes) == [(8, 4 + number // 2) for number in range(20)]
