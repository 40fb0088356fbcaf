"""`assay view`: the pages served on 127.0.0.1, under an address with a token."""

from __future__ import annotations

import secrets
import socket
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from assay.core.errors import InvalidOption, MissingPackage
from assay.core.installation import format_install_command
from assay.viewer.web.run_catalog import Library

__all__ = ["HOST", "check_packages", "open_socket", "serve"]

HOST = "127.0.0.1"
_NEEDED = ("plotly", "starlette", "uvicorn")


def check_packages() -> None:
    """Raises `MissingPackage` where the extra is not installed."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise MissingPackage(f"the viewer needs {', '.join(missing)}", hint=format_install_command("viewer"))


def open_socket(port: int) -> socket.socket:
    """A socket on this machine only; 0 takes any port that is free.

    Raises:
        InvalidOption: Somebody else has the port.
    """
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((HOST, port))
    except (OSError, OverflowError) as error:
        opened.close()
        raise InvalidOption(
            f"port {port} cannot be used: {getattr(error, 'strerror', None) or error}",
            where="--port",
            hint="another viewer may have it; leave --port out to take a free one",
        ) from None
    return opened


def serve(words: Sequence[str], *, port: int = 0, announce: Callable[[str], Any]) -> None:
    """Serve until somebody ends it. `announce` is told the address once it can be opened."""
    check_packages()
    import uvicorn

    from assay.viewer.web.app import make_app, warm_up

    library = Library(words)
    listening = open_socket(port)
    number = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    app = make_app(library, token=token, port=number)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=1,
        proxy_headers=False, ws="none", lifespan="on",
    )  # fmt: skip

    library.expect()
    warm_up()
    sys.setswitchinterval(0.001)  # pages do not wait for an index that is being made
    listening.listen(128)  # whoever opens the address now waits a moment, and is answered
    announce(f"http://{HOST}:{number}/?token={token}")
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        listening.close()
