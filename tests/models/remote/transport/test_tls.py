"""Encrypted connections: the certificate is checked, with a proxy in between, too."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import InvalidOption
from assay.models.remote.transport.address import build_tls_context, parse_address
from assay.models.remote.transport.http import ConnectError, HttpClient, RemoteProtocolError

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="not installed: openssl")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Create a self-signed certificate for `localhost` and its key."""
    folder = tmp_path_factory.mktemp("tls")
    file, key = folder / "certificate.pem", folder / "key.pem"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    subprocess.run(
        [*command, "-days", "2", *name, "-keyout", str(key), "-out", str(file)],
        check=True,
        capture_output=True,
    )
    return file, key


BODY = b'{"said": "x"}'
REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            await reader.readexactly(length)
            writer.write(REPLY)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
        pass
    finally:
        writer.transport.abort()


def run_with_server(
    certificate: tuple[Path, Path],
    use: Callable[[int], Awaitable[Any]],
    *,
    asks_for_certificate: bool = False,
) -> Any:
    """Do something with the port of an encrypted server, which may accept only clients with the same certificate."""

    async def go() -> Any:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*map(str, certificate))
        if asks_for_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(str(certificate[0]))
        server = await asyncio.start_server(_answer, "127.0.0.1", 0, ssl=context)
        try:
            return await use(server.sockets[0].getsockname()[1])
        finally:
            server.close()

    return asyncio.run(go())


async def call_server(url: str, times: int = 2, **arguments: Any) -> list[bytes]:
    client = HttpClient(parse_address(url), headers={"Authorization": "key-of-the-server"}, **arguments)
    try:
        return [(await client.request("POST", "/x", b"{}", timeout_s=10)).body for _ in range(times)]
    finally:
        await client.close()
        await asyncio.sleep(0.01)


def test_an_untrusted_certificate_is_rejected(certificate: tuple[Path, Path]) -> None:
    with pytest.raises(ConnectError, match="untrusted certificate"):
        run_with_server(certificate, lambda port: call_server(f"https://localhost:{port}"))


def test_a_certificate_file_is_trusted(certificate: tuple[Path, Path]) -> None:
    bodies = run_with_server(
        certificate, lambda port: call_server(f"https://localhost:{port}", ca_cert_path=str(certificate[0]))
    )
    assert bodies == [BODY, BODY]


def test_a_certificate_of_another_host_is_rejected(certificate: tuple[Path, Path]) -> None:
    with pytest.raises(ConnectError, match="untrusted certificate"):
        run_with_server(
            certificate,
            lambda port: call_server(f"https://127.0.0.1:{port}", ca_cert_path=str(certificate[0])),
        )


def test_verify_certificate_false_accepts_any_certificate(certificate: tuple[Path, Path]) -> None:
    bodies = run_with_server(
        certificate, lambda port: call_server(f"https://localhost:{port}", verify_certificate=False)
    )
    assert bodies == [BODY, BODY]


def test_a_client_certificate_is_presented(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    both = tmp_path / "client.pem"
    both.write_text(certificate[0].read_text() + certificate[1].read_text())
    trusted = str(certificate[0])

    def call(client_cert_path: str) -> Any:
        return run_with_server(
            certificate,
            lambda port: call_server(
                f"https://localhost:{port}", ca_cert_path=trusted, client_cert_path=client_cert_path
            ),
            asks_for_certificate=True,
        )

    assert call(str(both)) == [BODY, BODY]
    with pytest.raises((ConnectError, RemoteProtocolError)):
        call("")


def test_a_client_certificate_that_cannot_be_used_is_an_error(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    encrypted = tmp_path / "encrypted.pem"
    command = ["openssl", "pkey", "-in", str(certificate[1]), "-aes128", "-passout", "pass:secret"]
    key = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    encrypted.write_text(certificate[0].read_text() + key)
    for path, says in (
        (str(encrypted), "is encrypted"),
        (str(certificate[0]), "invalid client certificate"),
        (str(tmp_path / "none.pem"), "file not found"),
    ):
        with pytest.raises(InvalidOption, match=says) as caught:
            build_tls_context(True, client_certificate=path)
        assert caught.value.where == "client_cert_path"


def test_https_uses_a_proxy_tunnel(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    async def use(port: int) -> list[bytes]:
        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while data := await reader.read(65536):
                    writer.write(data)
            except ConnectionError:
                pass
            writer.transport.abort()

        async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            there, back = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(pump(reader, back), pump(there, writer))

        proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        monkeypatch.setenv("https_proxy", f"http://me:secret@127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        monkeypatch.setenv("no_proxy", "")
        try:
            bodies = await call_server("https://models.example", verify_certificate=False)
            return bodies + await call_server("https://[2001:db8::1]", 1, verify_certificate=False)
        finally:
            proxy.close()
            await asyncio.sleep(0.01)

    assert run_with_server(certificate, use) == [BODY, BODY, BODY]
    connect, to_ipv6 = asked
    assert to_ipv6.startswith(b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]")
    assert connect.startswith(b"CONNECT models.example:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6c2VjcmV0\r\n" in connect
    assert b"key-of-the-server" not in connect, "only the server gets its key"


def test_a_proxy_that_rejects_the_tunnel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        await writer.drain()
        writer.transport.abort()

    async def go() -> None:
        proxy = await asyncio.start_server(refuse, "127.0.0.1", 0)
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        monkeypatch.setenv("no_proxy", "")
        with pytest.raises(ConnectError, match="rejected the tunnel: HTTP 407"):
            await call_server("https://models.example")
        proxy.close()

    asyncio.run(go())


def test_a_tunnel_that_is_not_opened_is_a_connect_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the client gives up
        writer.transport.abort()

    async def go() -> None:
        proxy = await asyncio.start_server(accept, "127.0.0.1", 0)
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        monkeypatch.setenv("no_proxy", "")
        client = HttpClient(parse_address("https://models.example"), headers={}, connect_timeout_s=0.2)
        with pytest.raises(ConnectError, match=r"no connection within 0\.2 s"):
            await asyncio.wait_for(client.request("GET", "/models", timeout_s=60), 20)
        await client.close()
        proxy.close()

    asyncio.run(go())
