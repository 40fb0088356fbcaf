"""`bash`, `python` and the editor: what a model gets back, also when the program misbehaves."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, cast

import pytest

from assay.agents.sandbox_tools import MAX_RESULT_CHARACTERS, SANDBOX_TOOLS, cut_text
from assay.agents.tools import EFFECTS, Environment, ToolOutput
from assay.core.json_schema import describe_invalid_schema
from assay.core.records.programs import SandboxError
from assay.sandboxes.sessions import SandboxSession
from assay.sandboxes.snapshots import SnapshotStore

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandbox sessions need Linux")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxSession]:
    try:
        opened = SandboxSession(SnapshotStore(tmp_path_factory.mktemp("store"))).open()
    except SandboxError as problem:
        pytest.skip(problem.what)
    with opened:
        yield opened


def call(session: SandboxSession, tool: str, **arguments: Any) -> ToolOutput:
    environment = cast(Environment, None)  # these tools do not use it
    output = SANDBOX_TOOLS[tool](session, timeout_s=30.0).call(arguments, environment)
    assert isinstance(output, ToolOutput)
    return output


@pytest.mark.parametrize("name", SANDBOX_TOOLS)
def test_definitions_are_valid_schemas_with_an_effect(session: SandboxSession, name: str) -> None:
    tool = SANDBOX_TOOLS[name](session)
    assert describe_invalid_schema(tool.definition.parameters) == ""
    assert tool.effect in EFFECTS and tool.in_thread


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        pytest.param("bash", {"command": "echo a; echo b >&2"}, ToolOutput("a\nb\n"), id="both outputs"),
        pytest.param("bash", {"command": "true"}, ToolOutput("[no output]"), id="no output"),
        pytest.param("bash", {"command": "echo x; exit 3"}, ToolOutput("x\n[exit code 3]"), id="exit code"),
        pytest.param("bash", {"command": "kill -9 $$"}, ToolOutput("[killed by signal 9]"), id="signal"),
        pytest.param("bash", {"command": "a\0b"}, ToolOutput("the command contains a NUL character", error=True), id="nul"),
        pytest.param("bash", {"command": "printf '\\xff'"}, ToolOutput("\ufffd"), id="bytes that are not text"),
        pytest.param(
            "bash", {"command": "sleep 600", "timeout_s": 0.5},
            ToolOutput("[stopped after 0.5 s: time limit]", error=True), id="hangs",
        ),
        pytest.param("python", {"code": "print(6 * 7)"}, ToolOutput("42\n"), id="python"),
        pytest.param("python", {"code": "'é\ud800'"}, None, id="python with a lone surrogate"),
    ],
)  # fmt: skip
def test_what_a_model_gets(
    session: SandboxSession, tool: str, arguments: dict[str, Any], expected: ToolOutput | None
) -> None:
    output = call(session, tool, **arguments)
    assert output == expected if expected else "SyntaxError" in output.text


def test_a_result_of_50_mb_is_cut_with_a_line_that_says_so(session: SandboxSession) -> None:
    output = call(session, "bash", command="echo first; yes | head -c 50000000; echo last")
    assert len(output.text) < MAX_RESULT_CHARACTERS + 200
    assert output.text.startswith("first\ny\n") and output.text.endswith("y\nlast\n")
    assert "characters are not shown]" in output.text


def test_cut_text_keeps_short_texts() -> None:
    assert cut_text("x" * MAX_RESULT_CHARACTERS) == "x" * MAX_RESULT_CHARACTERS


def test_the_commands_of_the_editor(session: SandboxSession) -> None:
    def edit(command: str, **more: Any) -> str:
        output = call(session, "editor", command=command, path="notes/a.txt", **more)
        assert not output.error, output
        return output.text

    edit("create", file_text="one\ntwo\nthree")
    edit("str_replace", old_str="two", new_str="2")
    edit("insert", insert_line=3, insert_text="four")
    edit("insert", insert_line=0, insert_text="zero\n")
    assert session.read_file("notes/a.txt") == b"zero\none\n2\nthree\nfour\n"
    assert edit("view", view_range=[2, 3]) == "     2\tone\n     3\t2"
    assert edit("view").startswith("     1\tzero\n")
    edit("str_replace", old_str="zero\n")
    assert session.read_file("/box/notes/a.txt") == b"one\n2\nthree\nfour\n"
    assert call(session, "editor", command="view", path="notes").text == "a.txt\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param({"command": "view", "path": "missing"}, "No such file", id="missing file"),
        pytest.param({"command": "view", "path": "twice", "view_range": [2, 9]}, "between 1 and 2", id="bad range"),
        pytest.param({"command": "view", "path": "binary"}, "not a text file", id="binary"),
        pytest.param({"command": "view", "path": "large"}, "larger than", id="large"),
        pytest.param({"command": "view", "path": "fifo"}, "not a regular file", id="fifo"),
        pytest.param({"command": "create", "path": "x"}, "needs `file_text`", id="no text"),
        pytest.param({"command": "create", "path": "/etc/passwd", "file_text": ""}, "Read-only|Permission", id="outside"),
        pytest.param({"command": "str_replace", "path": "twice", "old_str": "a"}, "occurs 2 times", id="twice"),
        pytest.param({"command": "str_replace", "path": "twice", "old_str": "z"}, "does not occur", id="absent"),
        pytest.param({"command": "str_replace", "path": "twice", "old_str": ""}, "is empty", id="empty"),
        pytest.param({"command": "insert", "path": "twice", "insert_text": "x"}, "needs `insert_line`", id="no line"),
        pytest.param(
            {"command": "insert", "path": "twice", "insert_text": "x", "insert_line": 9}, "has 1 lines", id="past the end"
        ),
    ],
)  # fmt: skip
def test_mistakes_in_the_editor_are_failed_calls(
    session: SandboxSession, arguments: dict[str, Any], problem: str
) -> None:
    session.write_file("twice", b"a a\n")
    session.write_file("binary", b"\0")
    session.run(["bash", "-c", "truncate -s 2M large; mkfifo fifo"])
    output = call(session, "editor", **arguments)
    assert output.error
    assert any(text in output.text for text in problem.split("|")), output.text
