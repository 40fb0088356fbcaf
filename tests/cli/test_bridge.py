"""`assay bridge` on the command line: a program on documents, a server until standard input ends, and bad options."""

from __future__ import annotations

import http.client
import io
import json
import sys
import threading
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from scripts.reference.json_schemas import SCHEMAS, read_schema
from tests.cli.conftest import Assay

from assay import models
from assay.core.records.programs import SandboxError
from assay.core.records.requests import Generate, Request
from assay.sandboxes.sessions import SandboxSession
from assay.sandboxes.snapshots import SnapshotStore
from assay.testing import ScriptedModel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandbox sessions need Linux")

AGENT = (
    "import json, os, urllib.request as u; k = os.environ; "
    "d = json.dumps({'max_tokens': 9, 'messages': [{'role': 'user', 'content': k['WORD']}]}).encode(); "
    "r = u.Request(k['ANTHROPIC_BASE_URL'] + '/v1/messages', d, {'x-api-key': k['ANTHROPIC_API_KEY']}); "
    "open('answer.txt', 'w').write(json.load(u.urlopen(r))['content'][0]['text'])"
)


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> ScriptedModel:
    """The model called `echo` on the command line."""

    def answer(request: Request) -> str:
        assert isinstance(request, Generate)
        return request.prompt.text.upper()

    model = ScriptedModel(answer, window=1)
    monkeypatch.setitem(models.MODELS._items, "echo", lambda: model)
    return model


@pytest.fixture
def _sessions(tmp_path: Path) -> None:
    try:
        SandboxSession(SnapshotStore(tmp_path / "probe")).open().close()
    except SandboxError as problem:
        pytest.skip(problem.what)


@pytest.mark.usefixtures("_sessions")
def test_a_program_on_documents(assay_command: Assay, echo: ScriptedModel, workspace: Path) -> None:
    rows = [
        {"id": "right", "checks": {"upper": "grep -qx HI answer.txt"}},
        {"id": "wrong", "checks": {"lower": "grep -qx hi answer.txt"}},
    ]
    (workspace / "documents.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = [
        "bridge",
        "--model",
        "echo",
        "--output",
        "out",
        "--documents",
        "documents.jsonl",
        "--env",
        "WORD=hi",
    ]
    called = assay_command(*arguments, "--", "python", "-c", AGENT)
    assert called.code == 0, called.err
    assert called.out.splitlines() == [
        "right: 1.00  (exited 0, 1 calls, 0 tokens)",
        "wrong: 0.00  (exited 0, 1 calls, 0 tokens)",
        "  lower: exit code 1",
        "score 0.500 [0.095, 0.905], 2 documents",
    ]
    again = assay_command(*arguments, "--json", "--", "python", "-c", AGENT)
    found = json.loads(again.out)
    Draft202012Validator(read_schema(SCHEMAS / "bridge.json")).validate(found)
    assert [row["score"] for row in found] == [1.0, 0.0] and "+HI" in found[0]["changes"]
    assert len(echo.asked) == 2  # documents share no samples, and finished ones are not run again


def test_a_server_until_standard_input_ends(
    assay_command: Assay, echo: ScriptedModel, monkeypatch: pytest.MonkeyPatch, workspace: Path
) -> None:
    printed: dict[str, str] = {}
    answers: list[str] = []

    class Input(io.StringIO):
        def read(self, size: int | None = -1) -> str:
            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
            return ""

    def call() -> None:
        port = int(printed["OPENAI_BASE_URL"].split(":")[2].split("/")[0])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        body = json.dumps({"messages": [{"role": "user", "content": "hello"}]})
        headers = {"authorization": f"Bearer {printed['OPENAI_API_KEY']}"}
        connection.request("POST", "/v1/chat/completions", body, headers)
        answers.append(json.load(connection.getresponse())["choices"][0]["message"]["content"])
        connection.close()

    def print_line(text: str, err: bool = False) -> None:
        if text.startswith("export "):
            name, _, value = text.removeprefix("export ").partition("=")
            printed[name] = value.strip("'")

    monkeypatch.setattr("click.echo", print_line)
    monkeypatch.setattr("sys.stdin", Input())
    assert assay_command("bridge", "--model", "echo", "--output", "out").code == 0
    assert answers == ["HELLO"]
    assert (workspace / "out" / "journal.sqlite").is_file()


@pytest.mark.usefixtures("echo")
def test_a_port_is_refused_with_a_command(assay_command: Assay) -> None:
    called = assay_command("bridge", "--model", "echo", "--output", "out", "--port", "8123", "--", "true")
    assert called.code == 2 and "`--port` cannot be used with a COMMAND" in called.err, called.err


@pytest.mark.parametrize(
    "option", [("--max_turns", "3"), ("--max_tokens", "9"), ("--timeout", "5"), ("--documents", "a.jsonl"), ("--json",)]
)  # fmt: skip
@pytest.mark.usefixtures("echo")
def test_options_of_the_command_are_refused_without_one(
    assay_command: Assay, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    called = assay_command("bridge", "--model", "echo", "--output", "out", *option)
    assert called.code == 2 and f"`{option[0]}` needs a COMMAND" in called.err, called.err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(["--model", "ecco"], "`ecco`", id="unknown model"),
        pytest.param(
            ["--model", "echo", "--documents", "missing.jsonl"], "cannot read `missing.jsonl`", id="no file"
        ),
        pytest.param(["--model", "echo", "--documents", "bad.jsonl"], "line 1 is not JSON", id="not JSON"),
        pytest.param(
            ["--model", "echo", "--documents", "list.jsonl"], "must be an object", id="not an object"
        ),
        pytest.param(["--model", "echo", "--documents", "empty.jsonl"], "no documents", id="empty"),
        pytest.param(["--model", "echo", "--env", "NAME"], "not NAME=VALUE", id="variable"),
        pytest.param(["--model", "echo", "--limits", "ram=1"], "unknown limit", id="unknown limit"),
        pytest.param(["--model", "echo", "--limits", "processes=many"], "must be a number", id="limit"),
        pytest.param(["--model", "echo", "--sandbox", "docker"], "has no sessions", id="sandbox"),
    ],
)
@pytest.mark.usefixtures("echo")
def test_bad_options_are_errors(
    assay_command: Assay, workspace: Path, arguments: list[str], problem: str
) -> None:
    for name, text in (("bad", "{"), ("list", "[1]"), ("empty", "\n")):
        (workspace / f"{name}.jsonl").write_text(text)
    called = assay_command("bridge", *arguments, "--output", "out", "--", "true")
    assert called.code in (1, 2) and problem in called.err, called.err
    assert "Traceback" not in called.err
