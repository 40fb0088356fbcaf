from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.assay_compat.models.api_server import Server


@pytest.fixture
def server() -> Iterator[Server]:
    started = Server()
    thread = threading.Thread(target=started.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield started
    started.shutdown()
    started.server_close()
    thread.join()
