"""The clients of the evaluation server: `EvalClient` and `AsyncEvalClient`, for this server and for lmms-eval's.

They need the standard library only. If a script has imported httpx, errors are those of httpx, which lmms-eval's client raises.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from http.client import HTTPException
from types import TracebackType
from typing import Any, Literal, NoReturn, Self
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

__all__ = ["AsyncEvalClient", "EvalClient", "HTTPStatusError"]

_DEFAULT_URL = "http://localhost:8000"


class HTTPStatusError(Exception):
    """The server answered with an error status."""

    def __init__(self, message: str, *, status_code: int, text: str) -> None:
        super().__init__(message)
        self.response = _Response(status_code, text)
        """Status and body of the response."""


class _Response:
    def __init__(self, status_code: int, text: str) -> None:
        self.status_code = status_code
        self.text = text

    def json(self) -> Any:
        return json.loads(self.text)


class EvalClient:
    """Submits jobs to an evaluation server and waits for their results."""

    def __init__(self, base_url: str = _DEFAULT_URL, timeout: float | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self.timeout = timeout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing to release: every request has its own connection."""

    def health(self) -> dict[str, Any]:
        """Return the state of the server."""
        return self._request("GET", "/health")

    def is_healthy(self) -> bool:
        """Whether the server answers and reports that it is healthy."""
        try:
            with urlopen(f"{self.base_url}/health", timeout=self.timeout) as response:
                return bool(json.loads(response.read()).get("status") == "healthy")
        except (OSError, ValueError, HTTPException):
            return False

    def list_tasks(self) -> list[str]:
        """Return the names of all tasks, groups and tags."""
        return list(self._request("GET", "/tasks").get("tasks", []))

    def list_models(self) -> list[str]:
        """Return the names of all models."""
        return list(self._request("GET", "/models").get("models", []))

    def evaluate(
        self,
        model: str,
        tasks: list[str],
        model_args: dict[str, Any] | None = None,
        num_fewshot: int | None = None,
        batch_size: int | str | None = None,
        device: str | None = None,
        limit: float | None = None,
        gen_kwargs: str | None = None,
        log_samples: bool = True,
        predict_only: bool = False,
        num_gpus: int = 1,
        output_dir: str | None = None,
    ) -> dict[str, Any]:
        """Submit a job; return its id, status and position in the queue."""
        body = {
            "model": model,
            "tasks": tasks,
            "model_args": model_args,
            "num_fewshot": num_fewshot,
            "batch_size": batch_size,
            "device": device,
            "limit": limit,
            "gen_kwargs": gen_kwargs,
            "log_samples": log_samples,
            "predict_only": predict_only,
            "num_gpus": num_gpus,
            "output_dir": output_dir,
        }
        return self._request("POST", "/evaluate", _drop_none(body))

    def get_job(self, job_id: str) -> dict[str, Any]:
        """Return the status of a job, with its results or its error."""
        return self._request("GET", f"/jobs/{quote(job_id, safe='')}")

    def cancel_job(self, job_id: str) -> dict[str, Any]:
        """Cancel a job that waits."""
        return self._request("DELETE", f"/jobs/{quote(job_id, safe='')}")

    def wait_for_job(
        self, job_id: str, poll_interval: float = 5.0, timeout: float | None = None, verbose: bool = True
    ) -> dict[str, Any]:
        """Wait for a job and return it with its results.

        Raises:
            TimeoutError: The job has not ended after `timeout` seconds.
            RuntimeError: The job failed or was cancelled.
        """
        started = time.monotonic()
        while True:
            job = self.get_job(job_id)
            if _is_completed(job, job_id, verbose=verbose):
                return job
            _check_timeout(job_id, started, timeout)
            time.sleep(poll_interval)

    def get_queue_status(self) -> dict[str, Any]:
        """Return the running job, the jobs that wait, and the numbers of completed and failed jobs."""
        return self._request("GET", "/queue")

    def merge_checkpoint(
        self,
        checkpoint_path: str,
        output_path: str | None = None,
        checkpoint_type: Literal["regular", "ema"] = "regular",
    ) -> dict[str, Any]:
        """Merge a sharded FSDP2 checkpoint on the server."""
        body = {
            "checkpoint_path": checkpoint_path,
            "output_path": output_path,
            "checkpoint_type": checkpoint_type,
        }
        return self._request("POST", "/merge", body)

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the JSON object of the response."""
        request = Request(
            f"{self.base_url}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"accept": "application/json"}
            if body is None
            else {"accept": "application/json", "content-type": "application/json"},
            method=method,
        )
        try:
            with urlopen(request, timeout=self.timeout) as response:
                found: dict[str, Any] = json.loads(response.read())
        except HTTPError as error:
            _raise_status_error(method, error)
        except URLError as error:
            _raise_connect_error(method, request.full_url, error)
        return found


class AsyncEvalClient:
    """`EvalClient` for asynchronous code: `async with AsyncEvalClient(url) as client: …`."""

    def __init__(self, base_url: str = _DEFAULT_URL, timeout: float | None = None) -> None:
        self._client = EvalClient(base_url, timeout)
        self.base_url = self._client.base_url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Nothing to release: every request has its own connection."""

    async def health(self) -> dict[str, Any]:
        """Return the state of the server."""
        return await asyncio.to_thread(self._client.health)

    async def evaluate(self, model: str, tasks: list[str], **kwargs: Any) -> dict[str, Any]:
        """Submit a job; return its id, status and position in the queue."""
        body = _drop_none({"model": model, "tasks": tasks, **kwargs})
        return await asyncio.to_thread(self._client._request, "POST", "/evaluate", body)

    async def get_job(self, job_id: str) -> dict[str, Any]:
        """Return the status of a job, with its results or its error."""
        return await asyncio.to_thread(self._client.get_job, job_id)

    async def cancel_job(self, job_id: str) -> dict[str, Any]:
        """Cancel a job that waits."""
        return await asyncio.to_thread(self._client.cancel_job, job_id)

    async def wait_for_job(
        self, job_id: str, poll_interval: float = 5.0, timeout: float | None = None, verbose: bool = True
    ) -> dict[str, Any]:
        """Wait for a job and return it with its results.

        Raises:
            TimeoutError: The job has not ended after `timeout` seconds.
            RuntimeError: The job failed or was cancelled.
        """
        started = time.monotonic()
        while True:
            job = await self.get_job(job_id)
            if _is_completed(job, job_id, verbose=verbose):
                return job
            _check_timeout(job_id, started, timeout)
            await asyncio.sleep(poll_interval)

    async def get_queue_status(self) -> dict[str, Any]:
        """Return the running job, the jobs that wait, and the numbers of completed and failed jobs."""
        return await asyncio.to_thread(self._client.get_queue_status)


def _drop_none(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if value is not None}


def _is_completed(job: dict[str, Any], job_id: str, *, verbose: bool) -> bool:
    """Whether a job is completed; print its status, and raise an error if it ended otherwise."""
    status = job.get("status")
    if verbose and status in ("queued", "running", "completed"):
        note = f" (position: {job.get('position_in_queue', '?')})" if status == "queued" else ""
        sys.stdout.write(f"Job {job_id[:8]}... {status}{note}{'!' if status == 'completed' else ''}\n")
    if status == "failed":
        raise RuntimeError(f"Job failed: {job.get('error', 'unknown error')}")
    if status == "cancelled":
        raise RuntimeError(f"Job {job_id} was cancelled")
    return status == "completed"


def _check_timeout(job_id: str, started: float, timeout: float | None) -> None:
    if timeout and time.monotonic() - started > timeout:
        raise TimeoutError(f"Timeout waiting for job {job_id}")


def _raise_status_error(method: str, error: HTTPError) -> NoReturn:
    text = error.read().decode("utf-8", "replace")
    message = f"HTTP status {error.code} for {method} {error.url}: {text}"
    httpx = sys.modules.get("httpx")
    if httpx is None:
        raise HTTPStatusError(message, status_code=error.code, text=text) from None
    request = httpx.Request(method, error.url)
    response = httpx.Response(error.code, text=text, request=request)
    raise httpx.HTTPStatusError(message, request=request, response=response) from None


def _raise_connect_error(method: str, url: str, error: URLError) -> NoReturn:
    message = f"cannot reach the evaluation server at {url}: {error.reason}"
    httpx = sys.modules.get("httpx")
    if httpx is None:
        kind = TimeoutError if isinstance(error.reason, TimeoutError) else ConnectionError
        raise kind(message) from None
    raise httpx.ConnectError(message, request=httpx.Request(method, url)) from None
