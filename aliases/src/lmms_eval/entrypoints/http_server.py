"""`lmms_eval.entrypoints.http_server`: the evaluation server."""

from assay_compat.evaluation_server.http_server import build_app, launch_server

__all__ = ["build_app", "launch_server"]


def __getattr__(name: str) -> object:
    """Return `app`, the ASGI app with the default settings, for `uvicorn lmms_eval.entrypoints.http_server:app`."""
    if name != "app":
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return build_app()
