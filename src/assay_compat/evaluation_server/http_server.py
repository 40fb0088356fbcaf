"""The endpoints of the evaluation server.

The server has no token, like lmms-eval's. It listens on 127.0.0.1 by default, and refuses requests that a web page of another
site sends: a job can run code of task files.
"""

from __future__ import annotations

import asyncio
import dataclasses
import ipaddress
import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from assay.core.errors import InvalidOption, MissingPackage
from assay.core.installation import assay_version, format_install_command
from assay_compat.evaluation_server.job_scheduler import JobScheduler, QueueFull
from assay_compat.evaluation_server.protocol import (
    EvaluateRequest,
    HealthResponse,
    InvalidBody,
    JobStatus,
    JobSubmitResponse,
    MergeRequest,
    MergeResponse,
    QueueStatusResponse,
    Record,
)
from assay_compat.evaluation_server.server_args import ServerArgs

__all__ = ["build_app", "launch_server", "open_socket", "serve"]

_REQUIRED_PACKAGES = ("starlette", "uvicorn")
_MAX_BODY_BYTES = 1024 * 1024

ENDPOINTS = {
    ("GET", "/health"): "State of the server.",
    ("POST", "/evaluate"): "Add a job to the queue.",
    ("GET", "/jobs/{job_id}"): "Status, results and error of a job.",
    ("DELETE", "/jobs/{job_id}"): "Cancel a job that waits.",
    ("GET", "/queue"): "Running job, waiting jobs, numbers of completed and failed jobs.",
    ("GET", "/tasks"): "Names of all tasks, groups and tags.",
    ("GET", "/models"): "Names of all models.",
    ("POST", "/merge"): "Merge a sharded FSDP2 checkpoint; needs the package lmms_engine.",
}
"""Method and path of each endpoint, with its description."""

_BODIES: dict[str, type[Record]] = {"/evaluate": EvaluateRequest, "/merge": MergeRequest}

R = TypeVar("R", bound=Record)


def launch_server(args: ServerArgs) -> None:
    """Serve until interrupted.

    Raises:
        MissingPackage: The extra `viewer` is not installed.
        InvalidOption: The address cannot be used.
    """
    check_packages()
    listening = open_socket(args.host, args.port)
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    sys.stderr.write(f"evaluation server: http://{shown}:{port} (descriptions of the endpoints at /docs)\n")
    if not ipaddress.ip_address(host).is_loopback:
        sys.stderr.write(
            "warning: the server has no authentication, and other machines can reach it: jobs run code of task files."
            " Use --host 127.0.0.1 and an SSH tunnel unless the network is trusted\n"
        )
    with listening:
        serve(build_app(args), listening)


def check_packages() -> None:
    """Raise `MissingPackage` if a package of the server is not installed."""
    missing = [name for name in _REQUIRED_PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingPackage(
            f"the evaluation server needs {', '.join(missing)}", hint=format_install_command("viewer")
        )


def open_socket(host: str, port: int) -> socket.socket:
    """Open a socket; `localhost` is 127.0.0.1, and port 0 takes any free port.

    Raises:
        InvalidOption: The address cannot be used.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            "127.0.0.1" if host == "localhost" else host,
            port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )[0]
        opened = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidOption(f"cannot listen on {host}: {error.strerror or error}", where="--host") from None
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind(address)
    except OSError as error:
        opened.close()
        raise InvalidOption(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            where="evaluation server",
            hint="another server may use the port; choose another one with --port",
        ) from None
    return opened


def serve(app: Any, listening: socket.socket) -> None:
    """Serve an app on a socket until interrupted."""
    import uvicorn

    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, proxy_headers=False, ws="none",
        lifespan="on", timeout_graceful_shutdown=1,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listening])


def build_app(args: ServerArgs | None = None) -> Any:
    """Return the ASGI app of a server. Its scheduler starts and stops with it."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    args = args or ServerArgs()
    endpoints = _Endpoints(args)

    @asynccontextmanager
    async def run_scheduler(app: Starlette) -> AsyncIterator[None]:
        await endpoints.scheduler.start()
        try:
            yield
        finally:
            await endpoints.scheduler.stop()

    def on_http_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return JSONResponse({"detail": error.detail}, error.status_code, headers=error.headers)

    def on_invalid_body(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, InvalidBody)
        return JSONResponse({"detail": error.errors}, 422)

    handlers: Mapping[Any, Any] = {HTTPException: on_http_error, InvalidBody: on_invalid_body}
    routes = [
        Route(path, handler, methods=[method])
        for (method, path), handler in endpoints.list_handlers().items()
    ]
    app = Starlette(routes=_merge_methods(routes), lifespan=run_scheduler, exception_handlers=dict(handlers))
    return _OriginCheck(app, only_loopback=_is_loopback(args.host))


def _merge_methods(routes: list[Any]) -> list[Any]:
    """Return one route for each path, so that other methods are answered with status 405."""
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    by_path: dict[str, dict[str, Any]] = {}
    for route in routes:
        for method in route.methods - {"HEAD"}:
            by_path.setdefault(route.path, {})[method] = route.endpoint

    def build(handlers: dict[str, Any]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            response: Response = await handlers["GET" if request.method == "HEAD" else request.method](
                request
            )
            return response

        return answer

    return [Route(path, build(handlers), methods=list(handlers)) for path, handlers in by_path.items()]


class _Endpoints:
    """Answers requests."""

    def __init__(self, args: ServerArgs) -> None:
        self.scheduler = JobScheduler(args.max_completed_jobs, args.temp_dir_prefix)

    def list_handlers(self) -> dict[tuple[str, str], Callable[[Any], Awaitable[Any]]]:
        """Return the function of each endpoint."""
        functions = (
            self.get_health,
            self.submit_job,
            self.get_job,
            self.cancel_job,
            self.get_queue,
            self.list_tasks,
            self.list_models,
            self.merge,
        )
        described: dict[tuple[str, str], Callable[[Any], Awaitable[Any]]] = {
            ("GET", "/docs"): self.get_docs,
            ("GET", "/openapi.json"): self.get_openapi,
        }
        return {**dict(zip(ENDPOINTS, functions, strict=True)), **described}

    async def get_health(self, request: Any) -> Any:
        now = datetime.now().astimezone().replace(tzinfo=None).isoformat()
        return _answer(HealthResponse(status="healthy", timestamp=now, queue_size=self.scheduler.queue_size))

    async def submit_job(self, request: Any) -> Any:
        body = await _read_body(request)
        try:
            job_id, position = await self.scheduler.add_job(EvaluateRequest.from_body(body))
        except QueueFull as error:
            return _answer_error(503, str(error))
        unknown = EvaluateRequest.list_unknown(body)
        ignored = f"; unknown fields without effect: {', '.join(unknown)}" if unknown else ""
        message = f"Job queued successfully. Position in queue: {position}{ignored}"
        return _answer(
            JobSubmitResponse(
                job_id=job_id, status=JobStatus.QUEUED, position_in_queue=position, message=message
            )
        )

    async def get_job(self, request: Any) -> Any:
        job_id = request.path_params["job_id"]
        job = await self.scheduler.get_job_with_position(job_id)
        return _answer_error(404, f"Job {job_id} not found") if job is None else _answer(job)

    async def cancel_job(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        job_id = request.path_params["job_id"]
        is_known = await self.scheduler.get_job(job_id) is not None
        is_cancelled, message = await self.scheduler.cancel_job(job_id)
        return (
            JSONResponse({"message": message})
            if is_cancelled
            else _answer_error(400 if is_known else 404, message)
        )

    async def get_queue(self, request: Any) -> Any:
        found = await self.scheduler.get_queue_stats()
        return _answer(
            QueueStatusResponse(
                queue_size=len(found["queued"]),
                running_job=found["running_job"],
                queued_jobs=found["queued"],
                completed_jobs=found["completed"],
                failed_jobs=found["failed"],
            )
        )

    async def list_tasks(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        from assay_compat.commands.script_api import TaskManager

        names = await asyncio.to_thread(lambda: TaskManager().all_tasks)
        return JSONResponse({"tasks": names})

    async def list_models(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        from assay.models import MODELS

        return JSONResponse({"models": sorted(MODELS.names())})

    async def merge(self, request: Any) -> Any:
        wanted = MergeRequest.from_body(await _read_body(request))
        try:
            merged = await asyncio.to_thread(_merge_checkpoint, wanted)
        except FileNotFoundError as error:
            return _answer_error(404, str(error))
        except ValueError as error:
            return _answer_error(400, str(error))
        except ImportError as error:
            return _answer_error(500, f"lmms_engine not available: {error}")
        except Exception as error:  # noqa: BLE001 - code of another package
            return _answer_error(500, f"Merge failed: {error}")
        return _answer(
            MergeResponse(success=True, message="Checkpoint merged successfully", merged_path=str(merged))
        )

    async def get_docs(self, request: Any) -> Any:
        from starlette.responses import HTMLResponse

        return HTMLResponse(_format_docs())

    async def get_openapi(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        return JSONResponse(_build_openapi())


def _merge_checkpoint(wanted: MergeRequest) -> Path:
    """Merge a sharded checkpoint with the package `lmms_engine`."""
    try:
        from lmms_engine.merger import FSDP2Merger  # type: ignore[import-not-found]
    except ImportError as error:
        raise ImportError(f"install lmms-engine to merge checkpoints ({error})") from error
    target = Path(wanted.output_path) if wanted.output_path else None
    merger = FSDP2Merger(checkpoint_type=wanted.checkpoint_type)
    return Path(merger.merge(Path(wanted.checkpoint_path), output_path=target))


async def _read_body(request: Any) -> Any:
    """Return the JSON value of a request body; its text if the content type is another one, None if there is none.

    A page of another site cannot send JSON without asking first, and the server allows none.
    """
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect

    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > _MAX_BODY_BYTES:
                raise HTTPException(413, f"a request has at most {_MAX_BODY_BYTES} bytes")
            parts.append(part)
    except ClientDisconnect:
        raise HTTPException(400, "the request ended before its body was complete") from None
    text = b"".join(parts).decode("utf-8", "replace")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not text:
        return None
    if kind != "application/json":
        return text
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()  # responses contain parts of it
        return value
    except json.JSONDecodeError as error:
        raise _build_json_error(error.pos, error.msg) from None
    except UnicodeEncodeError:
        raise _build_json_error(0, "a text has half of a surrogate pair") from None
    except ValueError:
        raise _build_json_error(0, "a number is not finite or too long") from None
    except RecursionError:
        raise _build_json_error(0, "the value is nested too deeply") from None


def _build_json_error(position: int, message: str) -> InvalidBody:
    place = ["body", position]
    return InvalidBody(
        [
            {
                "type": "json_invalid",
                "loc": place,
                "msg": "JSON decode error",
                "input": {},
                "ctx": {"error": message},
            }
        ]
    )


def _answer(record: Record) -> Any:
    from starlette.responses import JSONResponse

    return JSONResponse(record.model_dump())


def _answer_error(status: int, message: str) -> Any:
    from starlette.responses import JSONResponse

    return JSONResponse({"detail": message}, status)


class _OriginCheck:
    """ASGI middleware: refuses requests of web pages of other sites, and of other host names for a loopback address."""

    def __init__(self, app: Any, *, only_loopback: bool) -> None:
        self._app = app
        self._only_loopback = only_loopback

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and (refusal := self._find_refusal(scope)):
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _find_refusal(self, scope: Any) -> Any:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if self._only_loopback and not _is_loopback(_read_host_name(host)):
            return _answer_error(421, "Unknown host name. Use 127.0.0.1 or localhost.")
        origin = headers.get(b"origin")
        if headers.get(b"sec-fetch-site", "same-origin") not in ("same-origin", "none") or (
            origin is not None and origin != f"http://{host}"
        ):
            return _answer_error(403, "Requests of web pages of other sites are refused.")
        return None


def _read_host_name(header: str) -> str:
    """Return the name in a `Host` header; empty if it is malformed."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    """Whether a name or an address is one of this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _format_docs() -> str:
    """Return the page that describes the endpoints."""
    rows = "".join(
        f"<tr><td><code>{method}</code></td><td><code>{escape(path)}</code></td><td>{escape(about)}</td></tr>"
        for (method, path), about in ENDPOINTS.items()
    )
    bodies = "".join(
        f"<h2>Body of {path}</h2><table>"
        + "".join(
            f"<tr><td><code>{one.name}</code></td><td>{escape(one.metadata['about'])}</td><td>{_format_default(one)}</td></tr>"
            for one in dataclasses.fields(record)
        )
        + "</table>"
        for path, record in _BODIES.items()
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Evaluation server</title>'
        f"<h1>Evaluation server</h1><table>{rows}</table>{bodies}"
        '<p>Machine-readable: <a href="/openapi.json">openapi.json</a></p></html>'
    )


def _format_default(one: dataclasses.Field[Any]) -> str:
    return "required" if one.default is dataclasses.MISSING else f"default: {json.dumps(one.default)}"


_SCHEMA_TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "None": "null",
    "list[str]": "array",
    "dict[str, Any]": "object",
}


def _build_openapi() -> dict[str, Any]:
    """Return the description of the endpoints in the format OpenAPI."""
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), about in ENDPOINTS.items():
        entry: dict[str, Any] = {
            "summary": about,
            "responses": {"200": {"description": "A JSON object.", "content": {"application/json": {}}}},
        }
        if path in _BODIES and method == "POST":
            schema = {"$ref": f"#/components/schemas/{_BODIES[path].__name__}"}
            entry["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        if "{job_id}" in path:
            entry["parameters"] = [
                {"name": "job_id", "in": "path", "required": True, "schema": {"type": "string"}}
            ]
        paths.setdefault(path, {})[method.lower()] = entry
    schemas = {record.__name__: _build_schema(record) for record in _BODIES.values()}
    info = {"title": "LMMS-Eval Server", "description": "Run by Assay.", "version": assay_version()}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _build_schema(record: type[Record]) -> dict[str, Any]:
    properties = {}
    for one in dataclasses.fields(record):
        types = [_SCHEMA_TYPES[name] for name in str(one.type).split(" | ")]
        entry: dict[str, Any] = {
            "type": types if len(types) > 1 else types[0],
            "description": one.metadata["about"],
        }
        if "array" in types:
            entry["items"] = {"type": "string"}
        if one.default is not dataclasses.MISSING:
            entry["default"] = one.default
        properties[one.name] = entry
    required = [one.name for one in dataclasses.fields(record) if one.default is dataclasses.MISSING]
    return {"type": "object", "properties": properties, "required": required}
