"""Commands and webhooks that a watch calls when a checkpoint has a result or a regression is found.

They run in a thread of their own, one after the other. A failed call is repeated, then reported as a warning: hooks never stop
the watch. The payload goes to standard input or into the body of the request, never into a command line.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from assay.core.errors import InvalidOption
from assay.core.secrets import redact, register_secret

__all__ = ["Hooks", "HookDispatcher", "check_webhook"]

_ATTEMPTS = 3
_COMMAND_TIMEOUT_S = 300.0
_WEBHOOK_TIMEOUT_S = 15.0
_MAX_ERROR_LENGTH = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What to call. Commands are run by the shell."""

    on_result: Sequence[str] = ()
    on_regression: Sequence[str] = ()
    webhooks: Sequence[str] = ()
    retry_s: float = 2.0
    """Pause before the second attempt; it doubles with every further one."""

    def list_commands(self, kind: str) -> Sequence[str]:
        """Return the commands for a kind of event: `result` or `regression`."""
        return {"result": self.on_result, "regression": self.on_regression}.get(kind, ())

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to call."""
        return not (self.on_result or self.on_regression or self.webhooks)


def check_webhook(url: str) -> str:
    """Return the URL of a webhook, and register it as a secret: such URLs usually contain their key.

    Raises:
        InvalidOption: It is not an HTTP URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidOption(
            "not an HTTP URL", where="--webhook", hint="for example `https://example.org/hook`"
        )
    register_secret(url)
    if len(parts.path) > 1:
        register_secret(parts.path)
    if parts.query:
        register_secret(parts.query)
    return url


@dataclass(slots=True)
class HookDispatcher:
    """Delivers events in the background."""

    hooks: Hooks
    on_delivered: Callable[[str], None] = lambda event: None
    """Called with the id of an event when all its calls ended, so that it is not delivered again."""

    on_problem: Callable[[str], None] = lambda text: None
    _queue: queue.Queue[tuple[str, Mapping[str, Any]] | None] = field(default_factory=queue.Queue)
    _thread: threading.Thread | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    def send(self, event: str, payload: Mapping[str, Any]) -> None:
        """Deliver an event. `payload["event"]` is its kind: `result` or `regression`."""
        if self.hooks.is_empty:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._deliver_all, name="hooks", daemon=True)
            self._thread.start()
        self._queue.put((event, payload))

    def close(self, timeout_s: float = 60.0) -> None:
        """Wait until the events are delivered, or give up after some time."""
        if self._thread is None:
            return
        self._queue.put(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._stop.set()
            self.on_problem("hooks are still running; the watch ends without them")
        self._thread = None

    def _deliver_all(self) -> None:
        while (item := self._queue.get()) is not None:
            event, payload = item
            for command in self.hooks.list_commands(str(payload["event"])):
                self._attempt(f"the command of the event {payload['event']}", _run_command, command, payload)
            for url in self.hooks.webhooks:
                self._attempt(f"the webhook on {urlsplit(url).hostname}", _post, url, payload)
            self.on_delivered(event)

    def _attempt(
        self,
        name: str,
        call: Callable[[str, Mapping[str, Any]], str],
        target: str,
        payload: Mapping[str, Any],
    ) -> None:
        """Call a hook until it succeeds, a few times; then report a problem."""
        for attempt in range(1, _ATTEMPTS + 1):
            problem = call(target, payload)
            if not problem:
                return
            if attempt < _ATTEMPTS and self._stop.wait(self.hooks.retry_s * 2 ** (attempt - 1)):
                break
        self.on_problem(redact(f"{name} failed: {problem[:_MAX_ERROR_LENGTH]}"))


def _run_command(command: str, payload: Mapping[str, Any]) -> str:
    """Run a command with the payload as standard input; return why it failed, or an empty string."""
    fields = {
        f"ASSAY_{key.upper()}": str(value)
        for key, value in payload.items()
        if isinstance(value, (str, int, float)) and "\0" not in str(value)
    }
    try:
        done = subprocess.run(
            command,
            shell=True,  # the user's own command line; values of the event are not part of it
            input=json.dumps(payload).encode(),
            env={**os.environ, **fields},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {_COMMAND_TIMEOUT_S:g} s"
    except OSError as error:
        return str(error.strerror)
    last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return "" if not done.returncode else f"exit code {done.returncode}{f': {last}' if last else ''}"


def _post(url: str, payload: Mapping[str, Any]) -> str:
    """Send the payload to a webhook; return why that failed, or an empty string."""
    request = urllib.request.Request(
        url, json.dumps(payload).encode(), {"content-type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=_WEBHOOK_TIMEOUT_S) as reply:
            reply.read(1024)
    except urllib.error.HTTPError as error:
        error.close()
        return f"HTTP {error.code}"
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))
    return ""
