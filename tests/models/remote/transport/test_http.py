"""The HTTP client against a server that sends whatever the test writes."""

from __future__ import annotations

import asyncio
import gc
import gzip
import sys
import weakref
from typing import Any

import pytest
from tests.models.remote.scripted_server import Act, Script, replying, start_scripted_server

from assay.core.errors import MissingPackage
from assay.core.installation import format_install_command
from assay.models.remote.transport.address import parse_address
from assay.models.remote.transport.http import (
    ConnectError,
    Exchange,
    HttpClient,
    HttpRequest,
    ReadTimeout,
    RemoteProtocolError,
    Reply,
    ReplyTooLarge,
)

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def call_server(script: Script, times: int = 1, timeout_s: float = 5.0) -> tuple[list[Any], Any]:
    """Call a scripted server one time after the other: replies or errors, and the server's books."""

    async def go() -> tuple[list[Any], Any]:
        async with start_scripted_server(script) as server:
            client = HttpClient(parse_address(f"{server.url}/v1"), headers={"X-Test": "1"})
            results: list[Any] = []
            for number in range(times):
                try:
                    body = f'{{"number": {number}}}'.encode()
                    results.append(await client.request("POST", "/chat", body, timeout_s=timeout_s))
                except (RemoteProtocolError, ReadTimeout, ConnectError) as error:
                    results.append(error)
            await client.close()
            return results, server

    return asyncio.run(go())


def test_a_request_and_its_reply_are_transferred() -> None:
    (reply,), server = call_server(lambda asked: replying({"said": asked.json["number"]}))
    assert reply == Reply(200, reply.headers, b'{"said": 0}')
    assert reply.content_type == "application/json"
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.headers["x-test"]) == ("POST", "/v1/chat", "1")
    assert asked.headers["host"] == f"127.0.0.1:{server.port}"


def test_connections_are_reused() -> None:
    replies, server = call_server(lambda asked: replying({}), times=5)
    assert [reply.status for reply in replies] == [200] * 5
    assert server.connections == 1


def test_a_connection_closed_by_the_server_is_not_reused() -> None:
    replies, server = call_server(lambda asked: replying({}, Connection="close"), times=3)
    assert [reply.status for reply in replies] == [200] * 3
    assert server.connections == 3


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


_CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "acts",
    [
        [_CHUNKED + _chunk(b'{"a": ') + _chunk(b"1}") + b"0\r\n\r\n"],
        [_CHUNKED, _chunk(b'{"a": '), 0.01, _chunk(b"1}"), b"0\r\n", 0.01, b"X-Trail: 1\r\n\r\n"],
        [_CHUNKED + b'6;name=value;other="a b"\r\n{"a": \r\n' + b"02\r\n1}\r\n" + b"000;last\r\n\r\n"],
        [bytes([byte]) for byte in _CHUNKED + _chunk(b'{"a": ') + _chunk(b"1}") + b"0\r\nX-Trail: 1\r\n\r\n"],
        [
            HEAD + b"transfer-encoding:\tChunked  \r\n\r\n" + b"8\r\n",
            0.01,
            b'{"a": 1}',
            0.01,
            b"\r\n0",
            0.01,
            b"\r\n\r\n",
        ],
        [HEAD + b"Content-Length: 8\r\n\r\n" + b'{"a": 1}'],
        [bytes([byte]) for byte in HEAD + b"Content-Length: 8\r\n\r\n" + b'{"a": 1}'],
        [HEAD + b"\r\n" + b'{"a": ', 0.01, b"1}", b""],
        [b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"Content-Length: 8\r\n\r\n" + b'{"a": 1}'],
    ],
    ids=[
        "chunks",
        "chunks that trickle",
        "chunk extensions",
        "chunks byte by byte",
        "chunks cut anywhere",
        "a length",
        "byte by byte",
        "until it closes",
        "continue first",
    ],
)
def test_all_body_encodings_are_read(acts: list[Act]) -> None:
    (reply,), _ = call_server(lambda asked: acts)
    assert reply.body == b'{"a": 1}'


def test_a_compressed_body_is_decompressed() -> None:
    packed = gzip.compress(b'{"a": 1}')
    (reply,), _ = call_server(lambda asked: replying(packed, Content_Encoding="gzip"))
    assert reply.body == b'{"a": 1}'


@pytest.mark.parametrize("pieces", [1, 7, 1000])
@pytest.mark.parametrize("rest", [b"", b"junk"])
def test_all_members_of_a_compressed_body_are_read(pieces: int, rest: bytes) -> None:
    packed = gzip.compress(b'{"a":') + gzip.compress(b" 1}") + rest
    step = -(-len(packed) // pieces)
    chunks = b"".join(_chunk(packed[at : at + step]) for at in range(0, len(packed), step))
    acts: list[Act] = [_CHUNKED[:-2] + b"Content-Encoding: x-gzip\r\n\r\n" + chunks + _chunk(b"")]
    (reply,), _ = call_server(lambda asked: acts)
    assert reply.body == b'{"a": 1}'


@pytest.mark.parametrize(
    ("acts", "kind", "says"),
    [
        ([b""], RemoteProtocolError, "before the reply"),
        ([HEAD + b'Content-Length: 50\r\n\r\n{"a"', b""], RemoteProtocolError, "in the middle"),
        ([_CHUNKED + b"5\r\n{", b""], RemoteProtocolError, "in the middle"),
        ([b"SSH-2.0-server\r\n\r\n", 1.0], RemoteProtocolError, "invalid HTTP reply"),
        ([HEAD + b"Content-Length: many\r\n\r\n", 1.0], RemoteProtocolError, "invalid HTTP reply"),
        ([HEAD + b"Content-Length: -5\r\n\r\n", 1.0], RemoteProtocolError, "invalid HTTP reply"),
        ([_CHUNKED + b"zz\r\n", 1.0], RemoteProtocolError, "invalid HTTP reply"),
        ([_CHUNKED + b"-2\r\n{}\r\n", 1.0], RemoteProtocolError, "invalid HTTP reply"),
        ([_CHUNKED + b"fffffffffffffffff\r\n{}", 1.0], RemoteProtocolError, "invalid HTTP reply"),
        ([_CHUNKED + b'1\r\n{"a": 1}\r\n0\r\n\r\n', 1.0], RemoteProtocolError, "invalid HTTP reply"),
        ([_CHUNKED + _chunk(b"{}"), b""], RemoteProtocolError, "in the middle"),
        (
            [HEAD + b"Content-Length: 2\r\n" + _CHUNKED[len(HEAD) :] + _chunk(b"{}"), 1.0],
            RemoteProtocolError,
            "invalid",
        ),
        ([HEAD + b"Content-Length: 2\r\nContent-Length: 8\r\n\r\n{}", 1.0], RemoteProtocolError, "invalid"),
        (replying(b"junk", Content_Encoding="gzip"), RemoteProtocolError, "invalid HTTP reply"),
        (replying(b"junk", Content_Encoding="br"), RemoteProtocolError, "invalid HTTP reply"),
        ([30.0], ReadTimeout, "0.2 s"),
        ([HEAD + b"Content-Length: 50\r\n\r\n{", 30.0], ReadTimeout, "0.2 s"),
    ],
)
def test_incomplete_and_invalid_replies_are_errors(acts: list[Act], kind: type[Exception], says: str) -> None:
    (error,), _ = call_server(lambda asked: acts, timeout_s=0.2)
    assert type(error) is kind, error
    assert says in str(error)


def test_a_late_reply_does_not_reach_the_next_request() -> None:
    def script(asked: Any) -> list[Act]:
        number = asked.json["number"]
        return [0.3 if number == 0 else 0.0, *replying({"said": number})]

    (late, reply), server = call_server(script, times=2, timeout_s=0.15)
    assert isinstance(late, ReadTimeout)
    assert reply.body == b'{"said": 1}'
    assert server.connections == 2


def test_an_unexpected_reply_closes_the_connection() -> None:
    def script(asked: Any) -> list[Act]:
        return replying({"said": asked.json["number"]}) + (
            replying({"said": "more"}) if asked.json["number"] == 0 else []
        )

    replies, server = call_server(script, times=3)
    assert [reply.body for reply in replies if isinstance(reply, Reply)][-1] == b'{"said": 2}'
    assert b"more" not in b"".join(reply.body for reply in replies if isinstance(reply, Reply))
    assert server.connections == 2


def test_a_reply_that_no_request_asked_for_closes_the_connection() -> None:
    def script(asked: Any) -> list[Act]:
        stray = [0.05, *replying({"said": "stray"})] if asked.json["number"] == 0 else []
        return replying({"said": asked.json["number"]}) + stray

    async def go() -> None:
        async with start_scripted_server(script) as server:
            client = HttpClient(parse_address(server.url), headers={})
            first = await client.request("POST", "/", b'{"number": 0}', timeout_s=5)
            await asyncio.sleep(0.2)
            second = await client.request("POST", "/", b'{"number": 1}', timeout_s=5)
            await client.close()
            assert (first.body, second.body) == (b'{"said": 0}', b'{"said": 1}')
            assert server.connections == 2

    asyncio.run(go())


def test_a_large_body_is_sent_completely() -> None:
    async def go() -> None:
        async with start_scripted_server(lambda asked: replying({"length": len(asked.body)})) as server:
            client = HttpClient(parse_address(server.url), headers={})
            reply = await client.request("POST", "/", b"x" * 3_000_000, timeout_s=5)
            await client.close()
            assert reply.body == b'{"length": 3000000}'
            assert server.asked[0].headers["content-length"] == "3000000"

    asyncio.run(go())


@pytest.mark.parametrize(
    "acts",
    [replying(b"x" * 5000), replying(gzip.compress(b"x" * 5000), Content_Encoding="gzip")],
    ids=["plain", "compressed"],
)
def test_a_reply_larger_than_the_limit_is_an_error(acts: list[Act]) -> None:
    request = HttpRequest("GET", "/", max_body_bytes=1000)

    async def go() -> None:
        async with start_scripted_server(lambda asked: acts) as server:
            client = HttpClient(parse_address(server.url), headers={})
            exchange = Exchange()
            client.start(exchange, request, 5.0)
            with pytest.raises(ReplyTooLarge, match="max_reply_mb"):
                await exchange.reply
            await client.close()

    asyncio.run(go())


def test_cancelling_an_exchange_closes_its_connection() -> None:
    ended: list[Reply | Exception] = []

    async def go() -> None:
        async with start_scripted_server(lambda asked: [30.0]) as server:
            client = HttpClient(parse_address(server.url), headers={})
            exchange = Exchange(on_end=lambda _, outcome: ended.append(outcome))
            client.start(exchange, HttpRequest("GET", "/"), 5.0)
            while not exchange.is_connected:
                await asyncio.sleep(0.001)
            exchange.cancel()
            with pytest.raises(RemoteProtocolError, match="cancelled"):
                await exchange.reply
            await client.close()

    asyncio.run(go())
    assert len(ended) == 1


def test_a_finished_request_is_freed_without_garbage_collection() -> None:
    class Owner:
        """Refers to the exchange, as an attempt with retries does."""

        def __init__(self, request: HttpRequest) -> None:
            self.request = request
            self.exchange = Exchange(None, self.ignore, self.ignore)

        def ignore(self, *_: Any) -> None:
            pass

    async def go() -> None:
        async with start_scripted_server(lambda asked: replying({})) as server:
            client = HttpClient(parse_address(f"{server.url}/v1"), headers={})
            owner = Owner(HttpRequest("POST", "/chat", b"{}"))
            client.start(owner.exchange, owner.request, 5.0)
            await owner.exchange.reply
            await asyncio.sleep(0.05)  # the task ends after the reply
            freed = weakref.ref(owner)
            del owner
            assert freed() is None
            await client.close()

    gc.disable()
    try:
        asyncio.run(go())
    finally:
        gc.enable()


def test_a_refused_connection_is_a_connect_error() -> None:
    async def go() -> None:
        async with start_scripted_server(lambda asked: []) as server:
            port = server.port
        client = HttpClient(parse_address(f"http://127.0.0.1:{port}"), headers={})
        with pytest.raises(ConnectError):
            await client.request("GET", "/", timeout_s=1)
        await client.close()

    asyncio.run(go())


def test_headers_with_line_breaks_are_rejected() -> None:
    with pytest.raises(ValueError, match="line break"):
        HttpClient(parse_address("http://localhost"), headers={"X": "1\r\nAuthorization: x"})


def test_plain_http_uses_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        async with start_scripted_server(lambda asked: replying({"via": "proxy"})) as proxy:
            monkeypatch.setenv("http_proxy", f"http://me:pass%20word@127.0.0.1:{proxy.port}")
            monkeypatch.delenv("no_proxy", raising=False)
            monkeypatch.delenv("NO_PROXY", raising=False)
            client = HttpClient(parse_address("http://models.example/v1"), headers={})
            reply = await client.request("POST", "/chat", b"{}", timeout_s=5)
            assert reply.body == b'{"via": "proxy"}'
            (asked,) = proxy.asked
            assert asked.path == "http://models.example/v1/chat"
            assert asked.headers["proxy-authorization"] == "Basic bWU6cGFzcyB3b3Jk"
            await client.close()

    asyncio.run(go())


@pytest.mark.parametrize("exception", ["models.example", "other.test,.example", "*"])
def test_no_proxy_names_servers_that_are_called_directly(
    monkeypatch: pytest.MonkeyPatch, exception: str
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", exception)
    assert parse_address("http://models.example/v1").find_proxy() is None
    if exception != "*":
        proxy = parse_address("http://models.test/v1").find_proxy()
        assert proxy is not None and (proxy.host, proxy.port) == ("127.0.0.1", 9)


@pytest.mark.parametrize(
    ("exception", "url", "is_direct"),
    [
        ("models.example:8000", "http://models.example:8000/v1", True),
        ("models.example:8000", "http://models.example:8001/v1", False),
        ("other.test, 10.0.0.0/8", "http://10.1.2.3:8000", True),
        ("10.0.0.0/8", "http://11.1.2.3:8000", False),
        ("10.1.2.3", "http://10.1.2.3", True),
        ("fd00::/8", "http://[fd00::1]:8000", True),
        ("fd00::1", "http://[fd00::1]:8000", True),
        ("fd00::/8", "http://10.1.2.3", False),
    ],
)
def test_no_proxy_names_ports_and_networks(
    monkeypatch: pytest.MonkeyPatch, exception: str, url: str, is_direct: bool
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", exception)
    assert (parse_address(url).find_proxy() is None) is is_direct


def test_a_server_with_an_ipv6_address_is_called() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(HEAD + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}")
        writer.close()
        await writer.wait_closed()

    async def go() -> None:
        try:
            server = await asyncio.start_server(answer, "::1", 0)
        except OSError:
            pytest.skip("this machine has no IPv6")
        port = server.sockets[0].getsockname()[1]
        client = HttpClient(parse_address(f"http://[::1]:{port}/v1"), headers={})
        assert (await client.request("GET", "/models", timeout_s=5)).body == b"{}"
        assert f"\r\nHost: [::1]:{port}\r\n".encode() in heads[0]
        await client.close()
        server.close()

    heads: list[bytes] = []
    asyncio.run(go())


def test_a_missing_package_is_reported_before_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    client = HttpClient(parse_address("http://127.0.0.1:9"), headers={})
    with pytest.raises(MissingPackage) as caught:
        asyncio.run(client.request("GET", "/models", timeout_s=1))
    assert format_install_command("api") in caught.value.hint


@pytest.mark.parametrize("earlier", [b"", gzip.compress(b" ")], ids=["one member", "two members"])
def test_a_truncated_compressed_reply_is_an_error(earlier: bytes) -> None:
    packed = earlier + gzip.compress(b'{"said": 1}')[:-9]
    head = HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    (broken,), _ = call_server(lambda asked: [head + packed])
    assert isinstance(broken, RemoteProtocolError) and "truncated" in str(broken)
