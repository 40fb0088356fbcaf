"""Server addresses, proxies and TLS settings."""

from __future__ import annotations

import base64
import ipaddress
import re
import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from assay.core.errors import InvalidOption

__all__ = ["Address", "Proxy", "build_tls_context", "parse_address"]

_PORTS = {"http": 80, "https": 443}
_SECRET_IN_QUERY = re.compile(r"(^|[&_-])(key|apikey|token|secret|sig|password)=", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy, as configured in the environment."""

    host: str
    port: int
    authorization: str = ""
    """Value of the `Proxy-Authorization` header; empty: none."""

    @property
    def url(self) -> str:
        """The URL, without the password."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """The headers that only the proxy gets."""
        return {"Proxy-Authorization": self.authorization} if self.authorization else {}

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed base URL: `https://host:port/path?query`."""

    scheme: str
    host: str
    port: int
    path: str = ""
    """Prefix of every request path, without a trailing slash."""

    query: str = ""

    @property
    def host_header(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == _PORTS[self.scheme] else f"{name}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port. Models with the same origin share a server."""
        return f"{self.scheme}://{self.host_header}"

    @property
    def url(self) -> str:
        """The full URL."""
        return f"{self.origin}{self.path}" + (f"?{self.query}" if self.query else "")

    @property
    def is_local(self) -> bool:
        """Whether the server runs on this machine."""
        return self.host == "localhost" or (
            (number := _parse_ip(self.host)) is not None and number.is_loopback
        )

    def find_proxy(self) -> Proxy | None:
        """Return the proxy that `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` select for this server."""
        proxies = urllib.request.getproxies()
        if self.is_local or self._bypasses_proxy(proxies.get("no", "")):
            return None
        given = proxies.get(self.scheme) or proxies.get("all")
        if not given:
            return None
        parts = urlsplit(given if "://" in given else f"http://{given}")
        if parts.scheme != "http" or not parts.hostname:
            raise InvalidOption(
                f"unsupported proxy scheme: `{parts.scheme}`",
                where=f"{self.scheme.upper()}_PROXY",
                hint="use http://host:port",
            )
        authorization = ""
        if parts.username:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = "Basic " + base64.b64encode(pair.encode()).decode()
        return Proxy(parts.hostname, parts.port or 80, authorization)

    def _bypasses_proxy(self, no_proxy: str) -> bool:
        """Whether `NO_PROXY` names this server: by its name, a domain, its name with the port, or a network (`10.0.0.0/8`)."""
        bypass = urllib.request.proxy_bypass
        if bypass(self.host) or bypass(f"{self.host}:{self.port}"):
            return True
        number = _parse_ip(self.host)
        return number is not None and any(number in network for network in _parse_networks(no_proxy))


def _parse_ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _parse_networks(no_proxy: str) -> Iterator[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    for entry in no_proxy.split(","):
        with suppress(ValueError):  # a name
            yield ipaddress.ip_network(entry.strip(), strict=False)


def parse_address(text: str, *, where: str = "base_url") -> Address:
    """Parse a base URL.

    >>> parse_address("http://localhost:8000/v1/").url
    'http://localhost:8000/v1'

    Raises:
        InvalidOption: The text is not an HTTP URL, or contains a secret.
    """
    hint = "use http://host:port/v1 or https://host/v1"
    try:
        parts = urlsplit(text.strip())
        port = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError as error:
        raise InvalidOption(f"invalid URL in `{where}`: {error}", where=where, hint=hint) from None
    if parts.scheme not in _PORTS or not parts.hostname or any(ch in text for ch in "\r\n "):
        raise InvalidOption(f"invalid URL in `{where}`", where=where, hint=hint)
    if parts.username or parts.password:
        raise InvalidOption(
            f"`{where}` contains a password, which would be stored in the files of the run",
            where=where,
            hint="give it as an environment variable with api_key_env=NAME",
        )
    if _SECRET_IN_QUERY.search(parts.query):
        raise InvalidOption(
            f"`{where}` contains a key, which would be stored in the files of the run",
            where=where,
            hint="give it as an environment variable with api_key_env=NAME",
        )
    return Address(
        parts.scheme, parts.hostname, port or _PORTS[parts.scheme], parts.path.rstrip("/"), parts.query
    )


@lru_cache(maxsize=8)
def build_tls_context(verify: bool, certificates: str = "", client_certificate: str = "") -> Any:
    """Return the TLS context: system certificates, certificates of a file, or no verification.

    Raises:
        InvalidOption: A file does not exist, or the client certificate has no usable key.
    """
    for name, path in (("ca_cert_path", certificates), ("client_cert_path", client_certificate)):
        if path and not Path(path).is_file():
            raise InvalidOption(f"file not found: `{path}`", where=name)
    context = ssl.create_default_context(cafile=certificates or None)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if client_certificate:
        try:
            context.load_cert_chain(client_certificate, password=_reject_password)
        except ssl.SSLError as error:
            raise InvalidOption(
                f"invalid client certificate: `{client_certificate}`: {error.reason or error}",
                where="client_cert_path",
                hint="use a PEM file with the certificate and its key",
            ) from None
    return context


def _reject_password() -> str:
    """Replace OpenSSL's question for the password, which would wait for the terminal."""
    raise InvalidOption(
        "the key of the client certificate is encrypted",
        where="client_cert_path",
        hint="decrypt it with `openssl pkey -in key.pem -out decrypted.pem`",
    )
