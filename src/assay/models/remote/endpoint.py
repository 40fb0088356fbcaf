"""One call to a server, with all that belongs to it: its turn, its retries, its time limit, its error.

endpoint = Endpoint(parse_address("http://localhost:8000/v1"), headers={...}, patience=Patience())
answered = await endpoint.post("/chat/completions", payload, read)
answered.value          # what `read` made of the JSON; `read` raises BadReply for what is no answer
await endpoint.close()
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from assay.core.errors import AssayError, UserMistake
from assay.core.secrets import know_secret, redacted
from assay.models.remote.address import Address
from assay.models.remote.attempt import Attempt
from assay.models.remote.connection import Broken, Reply, TooSlow, Unreachable
from assay.models.remote.faults import BadReply, Fault, NotAnswered, Patience, fault_of
from assay.models.remote.http import Call, HttpClient
from assay.models.remote.traffic import START, Gate, lane_of

__all__ = ["Answered", "Endpoint"]

T = TypeVar("T")

_SECRET = ("authorization", "key", "token", "secret", "cookie")
_GONE_AFTER_S = 120.0
"""How long nobody may reach the server before the run is stopped."""


@dataclass(frozen=True, slots=True)
class Answered(Generic[T]):
    """What came of a call."""

    value: T
    attempts: int
    seconds: float
    """What the last try took."""

    headers: Mapping[str, str]


class Endpoint:
    """A server, as one model calls it."""

    def __init__(
        self,
        address: Address,
        *,
        headers: Mapping[str, str] | None = None,
        key_variable: str = "",
        patience: Patience | None = None,
        num_concurrent: int = 32,
        start: int = START,
        rpm: float | None = None,
        tpm: float | None = None,
        verify_certificate: bool = True,
        ca_cert_path: str = "",
    ) -> None:
        for name, value in (headers or {}).items():
            if any(word in name.lower() for word in _SECRET):  # a key may also come as a header of the user's
                know_secret(value.rpartition(" ")[2])
        self.address = address
        self.patience = patience or Patience()
        self.lane = lane_of(address.origin)
        self.lane.limit(rpm, tpm)
        self.gate = Gate(num_concurrent, self.lane, start=start)
        self.calls = 0
        """Calls that went out, retries included."""

        self._key_variable = key_variable
        """Where the key belongs, for whoever has to put it right."""

        self._http = HttpClient(
            address,
            headers=headers or {},
            verify_certificate=verify_certificate,
            ca_cert_path=ca_cert_path,
        )
        self._jitter = random.Random()
        self._gone_since = 0.0

    async def post(
        self,
        path: str,
        payload: Mapping[str, Any] | bytes,
        read: Callable[[Any], T],
        *,
        tokens: int = 0,
        patience: Patience | None = None,
        content_type: str = "application/json",
    ) -> Answered[T]:
        """Send JSON, read JSON. `tokens` is what the call will probably use, for a budget per minute.

        Raises:
            NotAnswered: It came to nothing; `failure(request_id)` says why.
            UserMistake: The key is wrong, or the account is empty: no call will ever succeed.
        """
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        call = Call("POST", path, body, content_type)
        return await self._try(call, partial(_json, read), tokens, patience or self.patience)

    async def get(
        self, path: str, read: Callable[[Any], T], *, patience: Patience | None = None
    ) -> Answered[T]:
        """Read JSON. Raises as `post` does."""
        return await self._try(Call("GET", path), partial(_json, read), 0, patience or self.patience)

    async def get_text(self, path: str, *, patience: Patience | None = None) -> Answered[str]:
        """Read a text, whatever it is: a file of JSON lines. Raises as `post` does."""
        return await self._try(Call("GET", path), _text, 0, patience or self.patience)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    # --- one try after the other -------------------------------------------------------------------

    async def _try(
        self, call: Call, read: Callable[[Reply], T], tokens: int, patience: Patience
    ) -> Answered[T]:
        began = time.monotonic()
        failed = 0
        while True:
            left_s = patience.total_s - (time.monotonic() - began) if failed else patience.total_s
            timeout_s = min(patience.timeout_s, max(left_s, 0.05))
            attempt = Attempt(self.gate, self._http, call, timeout_s, tokens)
            outcome = await self._once(attempt, read)
            if not isinstance(outcome, Fault):
                self._gone_since = 0.0
                value, headers = outcome
                return Answered(value, failed + 1, attempt.seconds, headers)
            failed += 1
            await self._wait(outcome, failed, patience, began)

    async def _once(
        self, attempt: Attempt, read: Callable[[Reply], T]
    ) -> tuple[T, Mapping[str, str]] | Fault:
        """One try: what was read, or what went wrong."""
        self.calls += 1
        try:
            reply = await attempt.reply
            fault = fault_of(reply)
            return (read(reply), reply.headers) if fault is None else fault
        except asyncio.CancelledError:
            attempt.give_up()
            raise
        except TooSlow as error:
            return Fault("timeout", str(error), heals=True, late=True)
        except Broken as error:
            return Fault("connection", f"{self.address.origin}: {error}", heals=True)
        except BadReply as error:
            return Fault("bad reply", str(error), heals=True)
        except Unreachable as error:
            self._check_gone(error)
            return Fault("connection", f"{self.address.origin}: {error}", heals=True)

    async def _wait(self, fault: Fault, failed: int, patience: Patience, began: float) -> None:
        """Wait before the next try, or give up."""
        fault = replace(fault, message=redacted(fault.message))
        if fault.status == 401 or fault.kind == "no credit":
            raise self._hopeless(fault)
        pause_s = patience.pause(failed, fault, self._jitter)
        if fault.busy and fault.wait_s is not None:
            self.lane.quiet(fault.wait_s)
        spent_s = time.monotonic() - began
        if not fault.heals or failed > patience.retries or spent_s + pause_s > patience.total_s:
            raise NotAnswered(fault, failed)
        await asyncio.sleep(pause_s)

    def _check_gone(self, error: Unreachable) -> None:
        """A server that nobody reaches for minutes is gone: better to stop than to fail document after document."""
        now = time.monotonic()
        self._gone_since = self._gone_since or now
        if now - self._gone_since > _GONE_AFTER_S:
            raise AssayError(
                f"nobody answers at {self.address.origin} any more: {error}",
                hint="everything answered so far is saved; repeat the command to go on",
            )

    def _hopeless(self, fault: Fault) -> AssayError:
        server = self.address.origin
        if fault.kind == "no credit":
            return UserMistake(
                f"{server} has no credit left: {fault.message}",
                hint="everything answered so far is saved; repeat the command to go on",
            )
        name = self._key_variable or "OPENAI_API_KEY"
        return UserMistake(
            f"{server} does not take the key, or wants one: {fault.message}",
            where="--model_args",
            hint=f"put the right key into {name}, or name another variable with api_key_env=NAME",
        )


def _json(read: Callable[[Any], T], reply: Reply) -> T:
    """What `read` finds in a reply of JSON.

    Raises:
        BadReply: It is not JSON, or there is no answer in it.
    """
    text = _text(reply)
    kind = reply.content_type
    if kind and not kind.endswith("json"):
        raise BadReply(f"the reply is {kind}, not JSON: {text[:80]!r}")
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadReply(f"the reply is not whole JSON: {error}") from None
    try:
        return read(value)
    except BadReply:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise BadReply(f"the reply has another shape: {type(error).__name__}: {error}") from None


def _text(reply: Reply) -> str:
    try:
        return reply.body.decode()
    except UnicodeDecodeError:
        raise BadReply("the reply is not a UTF-8 text") from None
