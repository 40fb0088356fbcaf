"""Where a server is, and how to get there."""

from __future__ import annotations

import base64
import re
import ssl
import urllib.request
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from assay.core.errors import BadOption

__all__ = ["Address", "Proxy", "parse_address", "tls_context"]

_PORTS = {"http": 80, "https": 443}
_SECRET = re.compile(r"(^|[&_-])(key|apikey|token|secret|sig|password)=", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy as the environment names it."""

    host: str
    port: int
    authorization: str = ""
    """The value of `Proxy-Authorization`; empty for none."""

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"


@dataclass(frozen=True, slots=True)
class Address:
    """`https://host:port/path?query`, taken apart."""

    scheme: str
    host: str
    port: int
    path: str = ""
    """What goes before every call's own path; no slash at its end."""

    query: str = ""

    @property
    def host_header(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == _PORTS[self.scheme] else f"{name}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port: whoever shares them shares a server."""
        return f"{self.scheme}://{self.host_header}"

    @property
    def url(self) -> str:
        """The address as people write it."""
        return f"{self.origin}{self.path}" + (f"?{self.query}" if self.query else "")

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def proxy(self) -> Proxy | None:
        """The proxy the environment (`HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`) names for this server."""
        if self.is_local or urllib.request.proxy_bypass(self.host):
            return None
        proxies = urllib.request.getproxies()
        given = proxies.get(self.scheme) or proxies.get("all")
        if not given:
            return None
        parts = urlsplit(given if "://" in given else f"http://{given}")
        if parts.scheme != "http" or not parts.hostname:
            raise BadOption(
                f"a proxy of the kind `{parts.scheme}` is not known",
                where=f"{self.scheme.upper()}_PROXY",
                hint="http://host:port works",
            )
        authorization = ""
        if parts.username:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = "Basic " + base64.b64encode(pair.encode()).decode()
        return Proxy(parts.hostname, parts.port or 80, authorization)


def parse_address(text: str, *, where: str = "base_url") -> Address:
    """Take a base URL apart.

    >>> parse_address("http://localhost:8000/v1/").url
    'http://localhost:8000/v1'

    Raises:
        BadOption: It is not an address, or holds a password.
    """
    hint = "http://host:port/v1 or https://host/v1"
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError as error:
        raise BadOption(f"`{where}` is not an address: {error}", where=where, hint=hint) from None
    if parts.scheme not in _PORTS or not parts.hostname or any(ch in text for ch in "\r\n "):
        raise BadOption(f"`{where}` is not an address", where=where, hint=hint)
    if parts.username or parts.password:
        raise BadOption(
            f"`{where}` holds a password, which would be written into every file of the run",
            where=where,
            hint="give it as an environment variable with api_key_env=NAME",
        )
    if _SECRET.search(parts.query):
        raise BadOption(
            f"`{where}` holds a key, which would be written into every file of the run",
            where=where,
            hint="give it as an environment variable with api_key_env=NAME",
        )
    return Address(
        parts.scheme, parts.hostname, port or _PORTS[parts.scheme], parts.path.rstrip("/"), parts.query
    )


@lru_cache(maxsize=8)
def tls_context(verify: bool, certificates: str = "") -> Any:
    """How a server's certificate is checked: by the system's authorities, by a file of them, or not at all."""
    if certificates and not Path(certificates).is_file():
        raise BadOption(f"there is no file `{certificates}`", where="ca_cert_path")
    context = ssl.create_default_context(cafile=certificates or None)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
