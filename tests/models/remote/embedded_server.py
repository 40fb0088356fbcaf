"""The embedded model behind OpenAI's protocol: a real HTTP server, for tests that compare it with the model itself.

Which fields it understands the test says; what it does not understand it ignores without a word, as servers do.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from assay.core.records.messages import Message, Part, Prompt, Text
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Failure, Response
from assay.models.embedded.adapter import SHIPPED_WEIGHTS, EmbeddedModel
from assay.models.embedded.engine import EmbeddedEngine
from assay.models.embedded.sampling import log_softmax
from assay.tasks.prompts.media_parts import to_image_part

ALL = frozenset("n images logprobs echo zero prompt_logprobs many tokens stop tokenize".split())


def _format_tokens(said: Response) -> list[dict[str, Any]]:
    """Return the tokens of an answer in the format of chat completions."""
    assert said.tokens is not None
    return [
        {"token": piece, "logprob": number, "bytes": list(piece.encode()), "top_logprobs": []}
        for piece, number in zip(said.tokens.pieces, said.tokens.logprobs, strict=True)
    ]


class UnsupportedCall(Exception):
    """The server does not support the call."""


@dataclass
class EmbeddedServer:
    """One model, served. `knows` are the fields it understands."""

    knows: frozenset[str] = ALL
    key: str = ""
    port: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    payloads: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, list[str]] = field(default_factory=dict)
    """The answer to each question, by its last message."""

    replaced_after: int | None = None
    """Number of answers after which the server reports another identity."""

    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.model = EmbeddedModel()
        self.model.give_tokens()
        self.engine = self.model._engine = EmbeddedEngine(SHIPPED_WEIGHTS)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def fingerprint(self) -> str:
        said = sum(len(texts) for texts in self.answers.values())
        return "fp-1" if self.replaced_after is None or said <= self.replaced_after else "fp-2"

    def answer(self, path: str, payload: dict[str, Any] | None) -> dict[str, Any]:
        with self._lock:
            self.calls[path] += 1
            if payload is not None:
                self.payloads.append(payload)
        if path == "/v1/models":
            return {"object": "list", "data": [{"id": "embedded", "owned_by": "test", "max_model_len": 1024}]}
        if payload is None:
            raise UnsupportedCall(f"no such page: {path}")
        if payload.get("model", "embedded") != "embedded":
            raise UnsupportedCall(f"no such model: {payload['model']}")
        match path:
            case "/v1/chat/completions":
                return self._chat(payload)
            case "/v1/responses":
                return self._responses(payload)
            case "/v1/completions":
                return self._completions(payload)
            case "/tokenize" if "tokenize" in self.knows:
                return {"tokens": self.engine.tokenizer.encode(payload["prompt"])}
        raise UnsupportedCall(f"no such page: {path}")

    # --- chats -------------------------------------------------------------------------------------

    def _chat(self, payload: dict[str, Any]) -> dict[str, Any]:
        messages = tuple(
            Message(message["role"], self._parts(message["content"])) for message in payload["messages"]
        )
        prompt = Prompt(messages, chat=True)
        count = payload.get("n", 1) if "n" in self.knows else 1
        choices, usage = [], Counter[str]()
        for index in range(count):
            said = self._write(prompt, payload, payload.get("max_tokens", 16), index)
            choice: dict[str, Any] = {
                "index": index,
                "message": {"role": "assistant", "content": said.value},
                "finish_reason": said.finish,
            }
            if payload.get("logprobs") and "logprobs" in self.knows:
                choice["logprobs"] = {"content": _format_tokens(said)}
            choices.append(choice)
            assert said.usage is not None
            usage["prompt_tokens"] = said.usage.input_tokens
            usage["completion_tokens"] += said.usage.output_tokens
            with self._lock:
                self.answers.setdefault(messages[-1].text, []).append(str(said.value))
        return {
            "object": "chat.completion",
            "model": "embedded-of-the-server",
            "system_fingerprint": self.fingerprint(),
            "choices": choices,
            "usage": dict(usage),
        }

    def _responses(self, payload: dict[str, Any]) -> dict[str, Any]:
        messages = tuple(
            Message(
                message["role"],
                tuple(self._piece(piece) for piece in message["content"]),
            )
            for message in payload["input"]
        )
        said = self._write(Prompt(messages, chat=True), payload, payload["max_output_tokens"], 0)
        assert said.usage is not None
        reply: dict[str, Any] = {
            "model": "embedded-of-the-server",
            "status": "completed" if said.finish == "stop" else "incomplete",
            "output": [
                {"type": "reasoning", "summary": []},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": said.value}],
                },
            ],
            "usage": {
                "input_tokens": said.usage.input_tokens,
                "output_tokens": said.usage.output_tokens,
            },
        }
        if said.finish == "length":
            reply["incomplete_details"] = {"reason": "max_output_tokens"}
        return reply

    def _parts(self, content: Any) -> tuple[Part, ...]:
        if isinstance(content, str):
            return (Text(content),)
        parts = tuple(self._piece(piece) for piece in content)
        return tuple(part for part in parts if "images" in self.knows or isinstance(part, Text))

    def _piece(self, piece: Mapping[str, Any]) -> Part:
        match piece["type"]:
            case "text" | "input_text" | "output_text":
                return Text(piece["text"])
            case "image_url":
                return to_image_part(piece["image_url"]["url"])
            case "input_image":
                return to_image_part(piece["image_url"])
        raise UnsupportedCall(f"no {piece['type']} here")

    def _write(self, prompt: Prompt, payload: Mapping[str, Any], limit: int, repeat: int) -> Response:
        stops = payload.get("stop") if "stop" in self.knows else None
        settings = Settings(
            {
                "until": stops or [],
                "max_gen_toks": limit,
                "do_sample": payload.get("temperature", 1) > 0,
                "temperature": payload.get("temperature", 1),
                "seed": payload.get("seed", 0),
            }
        )
        request = Generate(task="served", document=0, repeat=repeat, prompt=prompt, settings=settings)
        outcome = self.model._answer_one(request)
        if isinstance(outcome, Failure):
            raise UnsupportedCall(outcome.message)
        return outcome

    # --- completions -------------------------------------------------------------------------------

    def _completions(self, payload: dict[str, Any]) -> dict[str, Any]:
        prompt = payload["prompt"]
        several = isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], int)
        prompts = prompt if several else [prompt]
        if several and "many" not in self.knows:
            prompts = prompt[:1]
        choices = [self._complete(one, payload, at) for at, one in enumerate(prompts)]
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        return {"model": "embedded-of-the-server", "choices": choices[::-1], "usage": usage}

    def _complete(self, prompt: Any, payload: dict[str, Any], index: int) -> dict[str, Any]:
        numbers = isinstance(prompt, list)
        if numbers and "tokens" not in self.knows:
            raise UnsupportedCall("a prompt is a text")
        ids = list(prompt) if numbers else self.engine.encode(prompt)
        limit = payload.get("max_tokens", 16)
        if limit == 0 and "zero" not in self.knows:
            limit = 1
        text = self._names(ids)[1:] if numbers else prompt
        generated = self._continue(ids, payload, limit)
        choice: dict[str, Any] = {"index": index, "text": generated.value, "finish_reason": generated.finish}
        if payload.get("echo") and "echo" in self.knows:
            choice["text"] = "".join(text) + str(generated.value)
            if payload.get("logprobs") is not None and "logprobs" in self.knows:
                choice["logprobs"] = self._echoed(ids, limit)
        elif payload.get("logprobs") is not None and "logprobs" in self.knows and generated.tokens:
            names, values = generated.tokens.pieces, generated.tokens.logprobs
            choice["logprobs"] = {"tokens": list(names), "token_logprobs": list(values)}
        if payload.get("prompt_logprobs") is not None and "prompt_logprobs" in self.knows:
            choice["prompt_logprobs"] = self._prompt_logprobs(ids)
        return choice

    def _continue(self, ids: list[int], payload: dict[str, Any], limit: int) -> Response:
        text = "".join(self._names(ids)[1:])
        return self._write(Prompt.of_text(text), payload, limit, 0)

    def _names(self, ids: list[int]) -> list[str]:
        return [self.engine.tokenizer.decode([number]) for number in ids]

    def _chances(self, ids: list[int]) -> Any:
        decoder = self.engine._decoder
        with self.engine._lock:
            hidden = decoder.read(decoder.embed(ids), decoder.make_cache())
            return log_softmax(decoder.logits(hidden))

    def _echoed(self, ids: list[int], limit: int) -> dict[str, Any]:
        log_probabilities = self._chances(ids)
        ids = [*ids, *[int(log_probabilities[-1].argmax())] * limit]
        names = self._names(ids)
        values: list[float | None] = [None]
        tops: list[dict[str, float] | None] = [None]
        for at in range(1, len(ids)):
            best = int(log_probabilities[at - 1].argmax())
            own, top = float(log_probabilities[at - 1][ids[at]]), float(log_probabilities[at - 1][best])
            values.append(own)
            tops.append({f"{best}": top, f"{ids[at]}": own})
        offsets = np.cumsum([0, *[len(name) for name in names]])[:-1].tolist()
        return {"tokens": names, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}

    def _prompt_logprobs(self, ids: list[int]) -> list[dict[str, Any] | None]:
        log_probabilities = self._chances(ids)
        found: list[dict[str, Any] | None] = [None]
        for at in range(1, len(ids)):
            row = log_probabilities[at - 1]
            best = int(row.argmax())
            entry: dict[str, Any] = {str(best): {"logprob": float(row[best]), "rank": 1}}
            if best != ids[at]:
                rank = int((row > row[ids[at]]).sum()) + 1
                entry[str(ids[at])] = {"logprob": float(row[ids[at]]), "rank": rank}
            for number, told in entry.items():
                told["decoded_token"] = self.engine.tokenizer.decode([int(number)])
            found.append(entry)
        return found


@contextmanager
def serving(knows: frozenset[str] = ALL, key: str = "") -> Iterator[EmbeddedServer]:
    """Run the server on a free port inside the block."""
    served = EmbeddedServer(knows, key)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._do(None)

        def do_POST(self) -> None:
            self._do(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _do(self, payload: dict[str, Any] | None) -> None:
            status, reply = 200, {}
            if served.key and self.headers.get("Authorization") != f"Bearer {served.key}":
                status = 401
                reply = {"error": {"message": f"wrong key: {self.headers.get('Authorization')}"}}
            else:
                try:
                    reply = served.answer(self.path.partition("?")[0], payload)
                except UnsupportedCall as error:
                    status = 404 if "no such" in str(error) else 400
                    reply = {"error": {"message": str(error)}}
            body = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: Any) -> None:
            """Ignore a client that disconnected."""

    server = Server(("127.0.0.1", 0), Handler)
    served.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
