"""Who may ask: nobody without the token, nobody under another machine's name, nobody from another site.

The server listens on 127.0.0.1 only, which keeps other machines out. The token keeps out other users of this machine and
pages in the browser that guess the port; the check of the name keeps out sites that point their own name at 127.0.0.1;
the policy in every answer keeps whatever a model wrote from being more than text.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, MutableMapping
from html import escape
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from assay.viewer.web.rendering import THEME

__all__ = ["POLICY", "Guard", "cookie_name"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self';"
    " media-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""What a page may load: from here, nothing else; no script and no style sheet that stands in the page itself.

Style attributes are allowed because plotly writes them into the charts it draws (a bold label, a measured width).
Nothing else has any: what models and tasks say is escaped, so it has no elements to put attributes on."""

_HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_NAMES = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?")


def cookie_name(port: int) -> str:
    """Cookies know no ports, so that two viewers at once need two names."""
    return f"assay-view-{port}"


class Guard:
    """Stands before the application."""

    def __init__(self, app: App, *, token: str, port: int) -> None:
        self._app = app
        self._token = token
        self._cookie = cookie_name(port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not _NAMES.fullmatch(headers.get(b"host", "")):
            await _say(send, 421, "This is not the name of this machine.")
            return
        given = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("token")
        if given is not None and scope["method"] == "GET":
            if self._is_token(given):
                await self._enter(scope, send)
            else:
                await _say(send, 403, _NO_TOKEN)
            return
        if not self._is_token(_cookie(headers.get(b"cookie", ""), self._cookie)):
            await _say(send, 403, _NO_TOKEN)
            return
        if scope["method"] not in ("GET", "HEAD") and not _same_origin(headers):
            await _say(send, 403, "Another site asked for this.")
            return
        chosen = _cookie(headers.get(b"cookie", ""), "assay-theme")
        THEME.set(chosen if chosen in ("light", "dark") else "")
        await self._app(scope, receive, _with_headers(send))

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())

    async def _enter(self, scope: Scope, send: Send) -> None:
        """Swap the token in the address for a cookie.

        By a page that goes on by itself rather than by a redirect: after a link on another site, a redirect would come
        without the cookie.
        """
        rest = [
            (key, value)
            for key, value in parse_qsl(scope["query_string"].decode("latin-1"))
            if key != "token"
        ]
        place = quote(scope["path"]) + (f"?{urlencode(rest)}" if rest else "")
        place = "/" + place.lstrip("/")  # never another machine
        cookie = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"
        page = (
            "<!doctype html><meta charset=utf-8><title>Assay</title>"
            f'<meta http-equiv="refresh" content="0; url={escape(place, quote=True)}">'
            f'<a href="{escape(place, quote=True)}">Go on</a>'
        )
        more = [(b"set-cookie", cookie.encode()), (b"cache-control", b"no-store")]
        await _send(send, 200, page.encode(), b"text/html; charset=utf-8", more)


_NO_TOKEN = "This page needs the address that `assay view` printed: the token at its end lets you in."


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _same_origin(headers: dict[bytes, str]) -> bool:
    """Whether a page of ours asks: browsers say where a request that changes something comes from."""
    if headers.get(b"sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = headers.get(b"origin")
    return origin is None or origin == f"http://{headers.get(b'host', '')}"


def _with_headers(send: Send) -> Send:
    async def wrapped(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            known = {name.lower() for name, _ in message.get("headers", [])}
            message["headers"] = [
                *message.get("headers", []),
                *((name, value) for name, value in _HEADERS if name not in known),
            ]
        await send(message)

    return wrapped


async def _say(send: Send, status: int, text: str) -> None:
    await _send(send, status, f"{text}\n".encode(), b"text/plain; charset=utf-8", [])


async def _send(send: Send, status: int, body: bytes, kind: bytes, more: list[tuple[bytes, bytes]]) -> None:
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        *_HEADERS,
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
