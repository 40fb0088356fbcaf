from __future__ import annotations

import base64
import http.server
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.making_media import make_png

from assay.core.errors import MediaError
from assay.media import media_files as module
from assay.media.media_files import open_media_file


@pytest.fixture
def server() -> Iterator[str]:
    """A web server with one picture at `/x.png`, on this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/x.png" else 404)
            self.end_headers()
            if self.path == "/x.png":
                self.wfile.write(make_png())

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_the_same_content_has_the_same_name_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a picture.png"
    path.write_bytes(make_png())
    data = base64.b64encode(make_png()).decode()
    sources = [
        make_png(),
        bytearray(make_png()),
        path,
        str(path),
        path.as_uri(),
        f"data:image/png;base64,{data}",
    ]
    found = [open_media_file(source) for source in sources]
    assert {source.digest for source in found} == {open_media_file(make_png()).digest}
    assert {source.read() for source in found} == {make_png()}


def test_a_file_is_opened_by_path_and_bytes_as_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(make_png())
    assert open_media_file(path).open() == str(path)
    stream = open_media_file(make_png()).open()
    assert isinstance(stream, io.BytesIO) and stream.read() == make_png()


@pytest.mark.server
def test_an_address_is_fetched_when_it_is_read_not_before(server: str) -> None:
    source = open_media_file(f"{server}/x.png")
    assert source.data is None
    assert source.read() == make_png()
    with pytest.raises(MediaError, match="404") as caught:
        open_media_file(f"{server}/y.png").read()
    assert caught.value.where == f"{server}/y.png"


@pytest.mark.server
def test_an_address_with_too_much_behind_it_is_given_up(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DOWNLOAD_BYTES", 10)
    with pytest.raises(MediaError, match="larger than"):
        open_media_file(f"{server}/x.png").read()


def test_an_address_that_does_not_answer_is_bad_media() -> None:
    source = open_media_file("http://127.0.0.1:9/x.png")  # the discard port: nobody listens
    with pytest.raises(MediaError, match="cannot download"):
        source.read()


@pytest.mark.parametrize("address", ["data:image/png;base64", "data:image/png;base64,???", "data:,%"])
def test_a_data_address_is_read_or_refused_with_its_place(address: str) -> None:
    if address == "data:,%":
        assert open_media_file(address).read() == b"%"
        return
    with pytest.raises(MediaError, match="invalid data URL") as caught:
        open_media_file(address, where="a.yaml:3")
    assert caught.value.where == "a.yaml:3"


def test_a_deleted_file_is_a_media_error(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(make_png())
    source = open_media_file(path)
    path.unlink()
    with pytest.raises(MediaError, match="cannot read the media file") as caught:
        source.read()
    assert caught.value.where == str(path)


@pytest.mark.parametrize("value", ["nowhere.png", "file:///nowhere.png", "", "\0", "x" * 5000, None])
def test_a_file_that_is_not_there_is_bad_media_with_its_place(value: Any) -> None:
    with pytest.raises(MediaError, match="media file not found") as caught:
        open_media_file(value, where="a.yaml:3")
    assert caught.value.where == "a.yaml:3"
