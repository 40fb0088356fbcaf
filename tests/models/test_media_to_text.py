from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from assay.core.errors import DatasetError, MediaError, MissingPackage
from assay.core.installation import format_install_command
from assay.core.messages import Audio, Image, Media, Message, Prompt, Text
from assay.core.requests import Generate, Likelihood, Request, Settings
from assay.core.responses import Failure, Outcome, Response
from assay.models.file_digests import hash_files
from assay.models.media_to_text import transcribe_media
from assay.models.packages import find_package_versions, require_package

PICTURE = Image(digest="d", load=lambda: None, source="x.png")
SOUND = Audio(digest="d", load=lambda: None)


def asked(*media: Media, until: tuple[str, ...] = ()) -> Generate:
    prompt = Prompt((Message("user", (*media, Text("Read it."))),))
    return Generate(task="t", document=0, prompt=prompt, settings=Settings({"until": list(until)}))


def outcome_of(request: Request, text: str = "one\ntwo\n\nthree") -> Outcome:
    def read(media: tuple[Media, ...]) -> str:
        if media[0].source == "broken":
            raise MediaError("it cannot be read", where="broken.png")
        return text

    async def work() -> list[Outcome]:
        return [outcome async for outcome in transcribe_media([request], read, Image)]

    (outcome,) = asyncio.run(work())
    assert outcome.request_id == request.id
    return outcome


@pytest.mark.parametrize(
    ("until", "expected", "finish"),
    [
        ((), "one\ntwo\n\nthree", ""),
        (("\n\n",), "one\ntwo", "stop"),
        (("three", "\n"), "one", "stop"),
        (("", "four"), "one\ntwo\n\nthree", ""),
    ],
)
def test_an_answer_ends_at_the_first_stop_string(until: tuple[str, ...], expected: str, finish: str) -> None:
    outcome = outcome_of(asked(PICTURE, until=until))
    assert isinstance(outcome, Response)
    assert (outcome.value, outcome.finish) == (expected, finish)


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (asked(), "bad request"),
        (asked(SOUND), "bad request"),
        (asked(PICTURE, SOUND), "bad request"),
        (asked(Image(digest="b", load=lambda: None, source="broken")), "bad media"),
        (Likelihood(task="t", document=0, prompt=asked(PICTURE).prompt, continuation=" x"), "bad request"),
    ],
    ids=["no medium", "another medium", "both", "a broken one", "a likelihood"],
)
def test_unreadable_media_are_a_failure(request_: Request, kind: str) -> None:
    outcome = outcome_of(request_)
    assert isinstance(outcome, Failure)
    assert outcome.kind == kind


def test_a_missing_package_is_an_error_with_its_extra() -> None:
    with pytest.raises(MissingPackage) as caught:
        require_package("no-such-package", "ocr", "the model `ocr`")
    assert format_install_command("ocr") in caught.value.hint
    assert find_package_versions("no-such-package", "numpy").keys() == {"numpy"}


def test_weights_are_hashed_by_content(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path, content in zip(paths, (b"1", b"2", b"1"), strict=True):
        path.write_bytes(content)
    a, b, c = paths
    assert hash_files(a) == hash_files(c) != hash_files(b)
    assert hash_files(a, b) != hash_files(b, a)
    with pytest.raises(DatasetError, match="cannot read weights"):
        hash_files(tmp_path / "missing")
