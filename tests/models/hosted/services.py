"""Local servers that implement the providers' documented APIs and validate requests strictly.

Each answers sums (`What is 3 + 1?`) and keeps the books. `trouble` may hold replies that come before any answer.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-test-planted-4711"
_SUM = re.compile(r"What is (\d+) \+ (\d+)\?")

Reply = tuple[int, dict[str, str], Any]
"""Status, headers, and what is sent as JSON; a text is sent as it is."""


class Service:
    """A service that records calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        """Method, path and body of every call."""

        self.trouble: list[Reply] = []
        """Replies to the next calls that ask for an answer."""

        self.lock = threading.Lock()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        raise NotImplementedError

    def asked(self, path: str) -> list[Any]:
        """The bodies sent to a path."""
        return [body for _, one, body in self.calls if one.partition("?")[0] == path]


def answer_to(text: str) -> str:
    """Return the expected answer."""
    found = _SUM.findall(text)
    return str(int(found[-1][0]) + int(found[-1][1])) if found else "I do not know."


class Anthropic(Service):
    """The Messages API and the Message Batches API."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: dict[str, dict[str, Any]] = {}
        self.version = ""
        """The version of the protocol the last call was made in."""

        self.seconds = 0.0
        """How long a batch takes."""

        self.spoil: dict[int, dict[str, Any]] = {}
        """Results of the n-th entry of the next batch in place of answers."""

    def reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        sent = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if sent != KEY:
            return 401, {}, _error("authentication_error", f"invalid x-api-key: {sent}")
        self.version = headers.get("anthropic-version", "")
        if self.version not in ("2023-06-01", "2026-10-21"):
            return 400, {}, _error("invalid_request_error", "anthropic-version: header is required")
        if path.startswith("/v1/messages/batches"):
            return self._batch(method, path, body)
        if (method, path) != ("POST", "/v1/messages"):
            return 404, {}, _error("not_found_error", path)
        if self.trouble:
            return self.trouble.pop(0)
        return self.message(json.loads(body))

    def message(self, call: dict[str, Any]) -> Reply:
        sampling = [name for name in ("temperature", "top_p", "top_k") if name in call]
        if sampling and self.version == "2026-10-21":
            return 400, {}, _error("invalid_request_error", f"{sampling[0]}: Extra inputs are not permitted")
        if wrong := _wrong_message(call):
            return 400, {}, _error("invalid_request_error", wrong)
        last = call["messages"][-1]
        text = last["content"] if isinstance(last["content"], str) else _texts(last["content"])
        said, reason = answer_to(text), "end_turn"
        if call["max_tokens"] < 2 and len(said) > 1:
            said, reason = said[:1], "max_tokens"
        content = [{"type": "text", "text": said}]
        if call.get("thinking", {}).get("type") in ("enabled", "adaptive"):
            content.insert(0, {"type": "thinking", "thinking": "Let me add.", "signature": "x"})
        usage = {
            "input_tokens": 20,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 5,
            "output_tokens": len(said),
        }
        return 200, {}, {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": call["model"],
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": usage,
        }  # fmt: skip

    def _batch(self, method: str, path: str, body: bytes) -> Reply:
        if method == "POST" and path == "/v1/messages/batches":
            requests = json.loads(body)["requests"]
            names = [one["custom_id"] for one in requests]
            if len(set(names)) < len(names) or not all(
                re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", one) for one in names
            ):
                return 400, {}, _error("invalid_request_error", "custom_id")
            name = f"msgbatch_{len(self.batches) + 1:02d}"
            self.batches[name] = {"requests": requests, "created": time.time(), "spoil": self.spoil}
            self.spoil = {}
            return 200, {}, self._about(name)
        if method == "GET" and path.partition("?")[0] == "/v1/messages/batches":
            listed = [self._about(name) for name in reversed(self.batches)]
            return 200, {}, {"data": listed, "has_more": False, "first_id": None, "last_id": None}
        name, _, what = path.removeprefix("/v1/messages/batches/").partition("/")
        if name not in self.batches:
            return 404, {}, _error("not_found_error", name)
        if what == "results":
            return 200, {"Content-Type": "application/x-jsonl"}, self._results(name)
        return 200, {}, self._about(name)

    def _about(self, name: str) -> dict[str, Any]:
        batch = self.batches[name]
        ended = time.time() - batch["created"] >= self.seconds
        count = len(batch["requests"])
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(batch["created"]))
        return {
            "id": name,
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": {"processing": 0 if ended else count, "succeeded": count if ended else 0},
            "created_at": created,
            "results_url": f"{self.url}/v1/messages/batches/{name}/results" if ended else None,
        }

    def _results(self, name: str) -> str:
        batch = self.batches[name]
        lines = []
        for at, one in enumerate(batch["requests"]):
            status, _, message = self.message(one["params"])
            result = (
                {"type": "succeeded", "message": message}
                if status == 200
                else {"type": "errored", "error": message}
            )
            lines.append(
                json.dumps({"custom_id": one["custom_id"], "result": batch["spoil"].get(at, result)})
            )
        return "\n".join(reversed(lines)) + "\n"  # results come in any order


def _wrong_message(call: dict[str, Any]) -> str:
    """Return the error message of the Messages API."""
    known = {
        "model", "max_tokens", "messages", "system", "temperature", "top_p", "top_k", "stop_sequences", "thinking", "output_config",
        "metadata",
    }  # fmt: skip
    if unknown := set(call) - known:
        return f"{unknown.pop()}: Extra inputs are not permitted"
    if not isinstance(call.get("max_tokens"), int) or not call.get("messages"):
        return "max_tokens: Field required"
    if any(not stop.strip() for stop in call.get("stop_sequences", ())):
        return "stop_sequences: each stop sequence must contain non-whitespace"
    if any(message["role"] not in ("user", "assistant") for message in call["messages"]):
        return "messages: unexpected role"
    last = call["messages"][-1]
    if last["role"] == "assistant" and last["content"] != last["content"].rstrip():
        return "messages: final assistant content cannot end with trailing whitespace"
    if "temperature" in call and not 0 <= call["temperature"] <= 1:
        return "temperature: range: 0..1"
    if call["model"].startswith("claude-no-temperature") and "temperature" in call:
        return "`temperature` is deprecated for this model."
    if {"temperature", "top_p"} <= set(call) and not call["model"].startswith("claude-3"):
        return "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
    if (call.get("thinking") or {}).get("type") == "enabled" and call["max_tokens"] <= call["thinking"][
        "budget_tokens"
    ]:
        return "max_tokens must be greater than thinking.budget_tokens"
    return ""


def _texts(pieces: list[dict[str, Any]]) -> str:
    return "".join(piece["text"] for piece in pieces if piece["type"] == "text")


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


class Gemini(Service):
    """`generateContent` of the Gemini API."""

    def reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        found = re.fullmatch(r"/v1(?:beta)?/models/([\w.-]+):generateContent", path)
        if method != "POST" or found is None:
            return 404, {}, {"error": {"code": 404, "message": "not found", "status": "NOT_FOUND"}}
        if headers.get("x-goog-api-key") != KEY:
            said = f"API key not valid: {headers.get('x-goog-api-key')}. Please pass a valid API key."
            details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]
            wrong = {"code": 400, "message": said, "status": "INVALID_ARGUMENT", "details": details}
            return 400, {}, {"error": wrong}
        if self.trouble:
            return self.trouble.pop(0)
        return self._content(found[1], json.loads(body))

    def _content(self, model: str, call: dict[str, Any]) -> Reply:
        for content in call["contents"]:
            assert content["role"] in ("user", "model")
            for part in content["parts"]:
                assert set(part) <= {"text", "inlineData", "videoMetadata"}
        chosen = call.get("generationConfig", {})
        if len(chosen.get("stopSequences", ())) > 5:
            return (
                400,
                {},
                {"error": {"code": 400, "message": "too many stop sequences", "status": "INVALID_ARGUMENT"}},
            )
        text = "".join(part.get("text", "") for part in call["contents"][-1]["parts"])
        if "forbidden" in text:
            return (
                200,
                {},
                {
                    "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
                    "usageMetadata": {"promptTokenCount": 7},
                },
            )
        parts: list[dict[str, Any]] = [{"text": answer_to(text)}]
        if chosen.get("thinkingConfig", {}).get("includeThoughts"):
            parts.insert(0, {"text": "Adding up.", "thought": True})
        return 200, {}, {
            "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {
                "promptTokenCount": 30,
                "cachedContentTokenCount": 10,
                "candidatesTokenCount": 2,
                "thoughtsTokenCount": 8,
                "totalTokenCount": 40,
            },
            "modelVersion": f"{model}-001",
        }  # fmt: skip


class OpenAIBatches(Service):
    """Files, batches and chat completions of the OpenAI API."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, str] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.seconds = 0.0
        self.spoil: dict[int, str] = {}
        """Entries of the next batch that fail: `error`, `expired` or `missing`."""

        self.fate = "completed"

    def reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        if headers.get("authorization") != f"Bearer {KEY}":
            return (
                401,
                {},
                {
                    "error": {
                        "message": f"Incorrect API key provided: {headers.get('authorization')}",
                        "code": "invalid_api_key",
                    }
                },
            )
        path = path.partition("?")[0]
        if (method, path) == ("POST", "/v1/files"):
            return self._upload(headers["content-type"], body)
        if (method, path) == ("POST", "/v1/batches"):
            return self._create(json.loads(body))
        if (method, path) == ("GET", "/v1/batches"):
            listed = [self._about(name) for name in reversed(self.batches)]
            return 200, {}, {"object": "list", "data": listed, "has_more": False}
        if (
            method == "GET"
            and (found := re.fullmatch(r"/v1/batches/(\w+)", path))
            and found[1] in self.batches
        ):
            return 200, {}, self._about(found[1])
        if method == "GET" and (found := re.fullmatch(r"/v1/files/([\w-]+)/content", path)):
            return 200, {"Content-Type": "application/octet-stream"}, self.files[found[1]]
        if (method, path) == ("POST", "/v1/chat/completions"):
            return self.trouble.pop(0) if self.trouble else _completion(json.loads(body))
        return 404, {}, {"error": {"message": f"no {method} {path}"}}

    def _upload(self, content_type: str, body: bytes) -> Reply:
        boundary = content_type.partition("boundary=")[2].encode()
        parts = [part for part in body.split(b"--" + boundary) if b"Content-Disposition" in part]
        fields = {}
        for part in parts:
            head, _, value = part.partition(b"\r\n\r\n")
            name = re.search(rb'name="(\w+)"', head)
            assert name is not None
            fields[name[1].decode()] = value.removesuffix(b"\r\n").decode()
        assert fields["purpose"] == "batch"
        file = f"file-{len(self.files) + 1}"
        self.files[file] = fields["file"]
        return 200, {}, {"id": file, "object": "file", "purpose": "batch", "bytes": len(fields["file"])}

    def _create(self, call: dict[str, Any]) -> Reply:
        assert call["endpoint"] == "/v1/chat/completions"
        assert call["completion_window"] == "24h"
        lines = [json.loads(line) for line in self.files[call["input_file_id"]].splitlines()]
        assert all(line["method"] == "POST" and line["url"] == call["endpoint"] for line in lines)
        assert len({line["custom_id"] for line in lines}) == len(lines)
        name = f"batch_{len(self.batches) + 1}"
        made = {"lines": lines, "created": time.time(), "metadata": call.get("metadata"), "spoil": self.spoil}
        self.batches[name] = {**made, "fate": self.fate}
        self.spoil, self.fate = {}, "completed"
        return 200, {}, self._about(name)

    def _about(self, name: str) -> dict[str, Any]:
        batch = self.batches[name]
        ended = time.time() - batch["created"] >= self.seconds
        about = {
            "id": name,
            "object": "batch",
            "status": batch["fate"] if ended else "in_progress",
            "metadata": batch["metadata"],
            "created_at": int(batch["created"]),
            "request_counts": {"total": len(batch["lines"])},
            "errors": None,
        }
        if ended and batch["fate"] == "failed":
            about["errors"] = {
                "data": [{"code": "token_limit_exceeded", "message": "Enqueued token limit reached"}]
            }
        elif ended:
            about |= self._write(name, batch)
        return about

    def _write(self, name: str, batch: dict[str, Any]) -> dict[str, str]:
        good: list[dict[str, Any]] = []
        bad: list[dict[str, Any]] = []
        for at, line in enumerate(batch["lines"]):
            spoiled = batch["spoil"].get(at)
            if spoiled == "missing":
                continue
            if spoiled == "expired":
                wrong = {
                    "code": "batch_expired",
                    "message": "This request could not be executed before the completion window expired.",
                }
                bad.append({"id": f"r{at}", "custom_id": line["custom_id"], "response": None, "error": wrong})
            elif spoiled == "error":
                reply = {"status_code": 500, "body": {"error": {"message": "The server had an error"}}}
                bad.append({"id": f"r{at}", "custom_id": line["custom_id"], "response": reply, "error": None})
            else:
                status, _, content = _completion(line["body"])
                reply = {"status_code": status, "request_id": "x", "body": content}
                (good if status == 200 else bad).append(
                    {"id": f"r{at}", "custom_id": line["custom_id"], "response": reply, "error": None}
                )
        files = {}
        for key, lines in (("output_file_id", good), ("error_file_id", bad)):
            if lines:
                files[key] = f"{key}-{name}"
                self.files[files[key]] = "".join(json.dumps(line) + "\n" for line in reversed(lines))
        return files


def _completion(call: dict[str, Any]) -> Reply:
    if call["model"].startswith("no-temperature") and "temperature" in call:
        said = "Unsupported value: 'temperature' does not support 0.0 with this model."
        return 400, {}, {"error": {"message": said, "param": "temperature", "code": "unsupported_value"}}
    content = call["messages"][-1]["content"]
    text = content if isinstance(content, str) else _texts(content)
    message = {"role": "assistant", "content": answer_to(text), "refusal": None}
    return (
        200,
        {},
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": call["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": 40,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 8},
            },
        },
    )


@contextmanager
def serving(service: Service) -> Iterator[Any]:
    """Run the service on a free port inside the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            try:
                known = json.loads(body) if body else None
            except ValueError:
                known = body
            with service.lock:
                service.calls.append((self.command, self.path, known))
                status, extra, value = service.reply(self.command, self.path, headers, body)
            content = (value if isinstance(value, str) else json.dumps(value)).encode()
            self.send_response(status)
            for name, text in {"Content-Type": "application/json", **extra}.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _handle  # noqa: N815 - names of the standard library

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    service.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
