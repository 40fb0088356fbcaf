"""Access control: a token, a host name check, a same-origin check and a content security policy.

The server listens on 127.0.0.1 only, which excludes other machines. The token excludes other users of this machine and web
pages that guess the port. The host name check prevents DNS rebinding. The content security policy in every response prevents
text from models and tasks from being executed.
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

__all__ = ["POLICY", "SITE_POLICY", "AccessControl", "build_cookie_name"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' blob:;"
    " font-src 'self'; media-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""The content security policy: only files of this server, no inline scripts and no inline style sheets.

Style attributes are allowed because plotly writes them into its charts (a bold label, a measured width) and KaTeX into its
formulas. Nothing else has any: text from models and tasks is escaped, and rendered markdown has no attributes of its own."""

SITE_POLICY = (
    "; ".join(
        part.replace("'self'", "'self' file:")
        for part in POLICY.split("; ")
        if not part.startswith(("frame-ancestors", "form-action"))
    )
    + "; form-action 'none'"
)
"""The policy of a static site, for its pages: files of the same site, on a web host or on a disk.

A meta element cannot forbid frames, and a page of a site sends no forms."""

_HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_LOCAL_HOSTS = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?")


def build_cookie_name(port: int) -> str:
    """Return the cookie name of a port: cookies ignore ports, so two viewers need two names."""
    return f"assay-view-{port}"


class AccessControl:
    """ASGI middleware that checks every request before the application sees it."""

    def __init__(self, app: App, *, token: str, port: int) -> None:
        self._app = app
        self._token = token
        self._cookie = build_cookie_name(port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not _LOCAL_HOSTS.fullmatch(headers.get(b"host", "")):
            await _send_text(send, 421, "Unknown host name. Use 127.0.0.1 or localhost.")
            return
        given = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("token")
        if given is not None and scope["method"] == "GET":
            if self._is_token(given):
                await self._set_cookie(scope, send)
            else:
                await _refuse(scope, headers, send)
            return
        if not self._is_token(_read_cookie(headers.get(b"cookie", ""), self._cookie)):
            await _refuse(scope, headers, send)
            return
        if scope["method"] not in ("GET", "HEAD") and not _is_same_origin(headers):
            await _send_text(send, 403, "Cross-origin request refused.")
            return
        chosen = _read_cookie(headers.get(b"cookie", ""), "assay-theme")
        THEME.set(chosen if chosen in ("light", "dark") else "")
        await self._app(scope, receive, _add_headers(send))

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())

    async def _set_cookie(self, scope: Scope, send: Send) -> None:
        """Replace the token in the URL by a cookie.

        The response is a page that refreshes to the URL instead of a redirect: after a link on another site, a browser
        follows a redirect without the cookie.
        """
        rest = [
            (key, value)
            for key, value in parse_qsl(scope["query_string"].decode("latin-1"))
            if key != "token"
        ]
        place = quote(scope["path"]) + (f"?{urlencode(rest)}" if rest else "")
        place = "/" + place.lstrip("/")  # never a URL of another host
        cookie = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"
        page = (
            "<!doctype html><meta charset=utf-8><title>Assay</title>"
            f'<meta http-equiv="refresh" content="0; url={escape(place, quote=True)}">'
            f'<a href="{escape(place, quote=True)}">Continue</a>'
        )
        more = [(b"set-cookie", cookie.encode()), (b"cache-control", b"no-store")]
        await _send(send, 200, page.encode(), b"text/html; charset=utf-8", more)


_MISSING_TOKEN = "Missing or invalid token. Open the URL that `assay view` printed: it contains the token."


async def _refuse(scope: Scope, headers: dict[bytes, str], send: Send) -> None:
    """Refuse a request without the token; a person gets a page that says how to get it."""
    if "text/html" not in headers.get(b"accept", ""):
        await _send_text(send, 403, _MISSING_TOKEN)
        return
    kept = [
        (name, value) for name, value in parse_qsl(scope["query_string"].decode("latin-1")) if name != "token"
    ]
    place = "/" + quote(scope["path"]).lstrip("/")  # never a URL of another host
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in kept
    )
    page = _TOKEN_PAGE.format(place=escape(place), hidden=hidden)
    more = [(b"cache-control", b"no-store")]
    await _send(send, 403, page.encode(), b"text/html; charset=utf-8", more)


_TOKEN_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Token needed · Assay</title></head>
<body style="margin:0;font:16px/1.55 system-ui,sans-serif"><main style="max-width:42rem;margin:0 auto;padding:2.5rem 1.25rem">
<h1 style="font-size:1.5rem">This link needs the token of its viewer</h1>
<p>If you started the viewer, open the URL that <code>assay view</code> printed in its terminal once in this browser. It
contains the token. Then open this link again.</p>
<p>If you received this link from another person, ask them for the URL with the token. It works on the machine of
the viewer, or through an SSH tunnel to it, as long as <code>assay view</code> runs there. For a copy that needs neither, ask
for a static site (<code>assay view --bundle DIR</code>).</p>
<form action="{place}" method="get">{hidden}<p><label>Token <input name="token" required autocomplete="off" style="width:24rem;max-width:100%;padding:.4rem .5rem;font:inherit"></label>
<button style="padding:.4rem 1rem;font:inherit">Open</button></p></form>
</main></body></html>
"""


def _read_cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _is_same_origin(headers: dict[bytes, str]) -> bool:
    """Whether the request comes from a page of this server, by the headers that browsers send."""
    if headers.get(b"sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = headers.get(b"origin")
    return origin is None or origin == f"http://{headers.get(b'host', '')}"


def _add_headers(send: Send) -> Send:
    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            known = {name.lower() for name, _ in message.get("headers", [])}
            message["headers"] = [
                *message.get("headers", []),
                *((name, value) for name, value in _HEADERS if name not in known),
            ]
        await send(message)

    return send_with_headers


async def _send_text(send: Send, status: int, text: str) -> None:
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
