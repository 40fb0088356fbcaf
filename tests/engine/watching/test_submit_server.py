from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import InvalidOption
from assay.engine.watching.checkpoints import CheckpointFinder
from assay.engine.watching.submissions import Submissions, resolve_submission
from assay.engine.watching.submit_server import serve_submissions

TOKEN = "a-token-for-tests"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out" / "checkpoint-1").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    return tmp_path / "out"


class Api:
    """The API of a watch, requested over HTTP."""

    def __init__(self, url: str, submissions: Submissions, wake: threading.Event) -> None:
        self.url, self.submissions, self.wake = url, submissions, wake

    def request(self, path: str, body: bytes | None = None, token: str = TOKEN) -> tuple[int, Any]:
        request = urllib.request.Request(self.url + path, body, {"authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)


@pytest.fixture
def api(folder: Path) -> Iterator[Api]:
    submissions, wake = Submissions(folder.parent / "submissions.json"), threading.Event()
    with serve_submissions(submissions, CheckpointFinder(folder), token=TOKEN, wake=wake) as url:
        yield Api(url, submissions, wake)


def test_submission_is_added_and_wakes_the_watch(api: Api, folder: Path) -> None:
    body = json.dumps({"checkpoint": "checkpoint-1", "priority": 7}).encode()
    assert api.request("/checkpoints", body) == (202, {"checkpoint": "checkpoint-1", "priority": 7.0})
    assert api.wake.is_set()
    assert api.submissions.priorities == {"checkpoint-1": 7.0}
    assert Submissions(folder.parent / "submissions.json").priorities == {"checkpoint-1": 7.0}


def test_status_is_what_the_watch_published(api: Api) -> None:
    api.submissions.publish({"checkpoints": [], "order": "even"})
    assert api.request("/status") == (200, {"checkpoints": [], "order": "even"})


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", "é"])
def test_wrong_token_is_refused(api: Api, token: str) -> None:
    encoded = token.encode().decode("latin-1")
    body = json.dumps({"checkpoint": "checkpoint-1"}).encode()
    assert api.request("/status", token=encoded)[0] == 401
    assert api.request("/checkpoints", body, encoded)[0] == 401
    assert api.submissions.priorities == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[",
        b"[" * 60_000,
        b"[]",
        b"{}",
        b'{"checkpoint": 5}',
        b'{"checkpoint": "../secret"}',
        b'{"checkpoint": "."}',
        b'{"checkpoint": "/etc"}',
        b'{"checkpoint": "checkpoint-1/../../secret"}',
        b'{"checkpoint": "nowhere"}',
        b'{"checkpoint": "checkpoint-1", "priority": "high"}',
        b'{"checkpoint": "checkpoint-1", "priority": NaN}',
        b'{"checkpoint": "a\\u0000b"}',
    ],
)
def test_malformed_submission_is_refused(api: Api, body: bytes) -> None:
    status, reply = api.request("/checkpoints", body)
    assert status == 400 and reply["error"]
    assert api.submissions.priorities == {}


def test_large_body_and_other_paths_are_refused(api: Api) -> None:
    assert api.request("/checkpoints", b" " * 70_000)[0] == 413
    assert api.request("/other")[0] == 404
    assert api.request("/other", b"{}")[0] == 404


def test_link_out_of_the_folder_is_refused(folder: Path) -> None:
    (folder / "checkpoint-2").symlink_to(folder.parent / "secret")
    with pytest.raises(InvalidOption, match="not inside"):
        resolve_submission(CheckpointFinder(folder), {"checkpoint": "checkpoint-2"})


@pytest.fixture
def nested(folder: Path) -> Path:
    """A folder with a checkpoint of the Trainer, one that matches no pattern, and weights beside and inside them."""
    for name in (
        "checkpoint-1/config.json", "checkpoint-1/model.safetensors", "checkpoint-1/runs/log.txt",
        "checkpoint-1/export/model.gguf", "best/config.json", "best/model.safetensors", "plain.gguf", "ggufs/best.gguf",
    ):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"{}")
    return folder


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("checkpoint-1/model.safetensors", "checkpoint-1"),
        ("checkpoint-1/config.json", "checkpoint-1"),
        ("checkpoint-1/runs", "checkpoint-1"),
        ("checkpoint-1/export/model.gguf", "checkpoint-1"),
        ("best/model.safetensors", "best"),
    ],
)
def test_part_of_another_checkpoint_is_refused(nested: Path, name: str, whole: str) -> None:
    with pytest.raises(InvalidOption, match=f"is a part of the checkpoint `{whole}`"):
        resolve_submission(CheckpointFinder(nested), {"checkpoint": name})


@pytest.mark.parametrize(
    "name", ["checkpoint-1", "best", "plain.gguf", "ggufs/best.gguf", "checkpoint-1/export"]
)
def test_checkpoint_of_its_own_is_accepted(nested: Path, name: str) -> None:
    assert resolve_submission(CheckpointFinder(nested), {"checkpoint": name}) == (name, 1.0)


def test_file_that_matches_a_pattern_is_accepted(nested: Path) -> None:
    finder = CheckpointFinder(nested, ("checkpoint-*/export/*.gguf",))
    content = {"checkpoint": "checkpoint-1/export/model.gguf"}
    assert resolve_submission(finder, content) == ("checkpoint-1/export/model.gguf", 1.0)


def test_used_port_is_an_error(api: Api, folder: Path) -> None:
    port = int(api.url.rpartition(":")[2])
    with (
        pytest.raises(InvalidOption, match="cannot listen"),
        serve_submissions(
            Submissions(), CheckpointFinder(folder), token=TOKEN, wake=threading.Event(), port=port
        ),
    ):
        pass
