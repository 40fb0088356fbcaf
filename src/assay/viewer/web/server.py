"""`assay view`: the server on 127.0.0.1, with a token in its URL."""

from __future__ import annotations

import secrets
import socket
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from assay.core.errors import InvalidOption, MissingPackage
from assay.core.installation import format_install_command
from assay.viewer.web.run_catalog import RunCatalog

__all__ = ["HOST", "check_packages", "open_socket", "serve"]

HOST = "127.0.0.1"
_REQUIRED_PACKAGES = ("plotly", "starlette", "uvicorn")


def check_packages() -> None:
    """Raise `MissingPackage` if the extra `viewer` is not installed."""
    missing = [name for name in _REQUIRED_PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingPackage(f"the viewer needs {', '.join(missing)}", hint=format_install_command("viewer"))


def open_socket(port: int) -> socket.socket:
    """Open a socket on 127.0.0.1; port 0 takes any free port.

    Raises:
        InvalidOption: The port cannot be used.
    """
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((HOST, port))
    except (OSError, OverflowError) as error:
        opened.close()
        raise InvalidOption(
            f"cannot use port {port}: {getattr(error, 'strerror', None) or error}",
            where="--port",
            hint="another viewer may use it; omit --port to take a free one",
        ) from None
    return opened


def serve(words: Sequence[str], *, port: int = 0, announce: Callable[[str], Any]) -> None:
    """Serve until interrupted; call `announce` with the URL once it can be opened."""
    check_packages()
    import uvicorn

    from assay.viewer.web.app import build_app, preload

    catalog = RunCatalog(words)
    listening = open_socket(port)
    number = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    app = build_app(catalog, token=token, port=number)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=1,
        proxy_headers=False, ws="none", lifespan="on",
    )  # fmt: skip

    catalog.preload_newest_index()
    preload()
    sys.setswitchinterval(0.001)  # keep pages responsive while an index is built
    listening.listen(128)  # connections wait in the backlog until the server runs
    announce(f"http://{HOST}:{number}/?token={token}")
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        listening.close()
