from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from select import select

import click
import pytest
from tests.cli.conftest import Assay

ROOT = Path(__file__).parents[2]
FILES = {
    "capitals.csv": "question,a,b,answer\nCapital of France?,Paris,Rome,A\nCapital of Italy?,Paris,Rome,B\n",
    "sums.jsonl": '{"Final Question": " 2+2", "final_answer": "4"}\n{"Final Question": "3+2", "final_answer": "5"}\n',
    "pages.json": json.dumps([{"page": "Once upon a time there was a cat."}]),
    "notes.txt": "nothing",
    "names.csv": "question,answer\nWho?,Ann\nWhere?,Rome\n",
}


@pytest.fixture(autouse=True)
def data(workspace: Path) -> None:
    for name, text in FILES.items():
        (workspace / name).write_text(text)


def run_tests(folder: str, *, inside: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    """The test that was written, run by pytest as its author would: from here, or inside the folder."""
    path = os.pathsep.join([str(ROOT / "src"), str(Path(folder).resolve())])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "." if inside else folder],
        cwd=folder if inside else None,
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "capitals.csv",
            ["multiple_choice: question `question`, choices `a, b`, answer `answer`", "choice 1: ' Rome'"],
        ),
        (
            "sums.jsonl",
            ["generate_until: question `Final Question`, answer `final_answer`", "prompt\n2+2\nAnswer:"],
        ),
        ("pages.json", ["loglikelihood_rolling: question `page`", "Once upon a time"]),
        ("names.csv", ["generate_until", "target   'Ann'"]),
    ],
)
def test_a_new_task_is_checked_and_shown(assay_command: Assay, source: str, words: list[str]) -> None:
    called = assay_command("new", "task", "mine", "--from", source)
    assert called.code == 0, called.err
    for word in [
        *words,
        "1 task checked: no errors, no warnings, no notes",
        "next: `assay run mine/mine.yaml",
    ]:
        assert word in called.out
    assert sorted(path.name for path in Path("mine").glob("*.*")) == ["mine.yaml", "test_mine.py", "utils.py"]
    run = assay_command("run", "mine/mine.yaml", "--model", "oracle", "--json")
    assert run.code == 0, run.err


@pytest.mark.parametrize("inside", [False, True])
def test_the_test_of_a_new_task_passes(assay_command: Assay, inside: bool) -> None:
    assert assay_command("new", "task", "mine", "--from", "sums.jsonl", "-o", "deep/mine").code == 0
    done = run_tests("deep/mine", inside=inside)
    assert "2 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("kind", ["model", "metric", "filter"])
def test_a_new_plugin_passes_its_own_contract(assay_command: Assay, kind: str) -> None:
    called = assay_command("new", kind, "my_own")
    assert called.code == 0 and f"`assay ls {kind}s` lists it" in called.out
    done = run_tests("my_own")
    assert done.returncode == 0, done.stdout
    entry = f'[project.entry-points."assay.{kind}s"]\nmy_own = "assay_my_own:'
    project = Path("my_own/pyproject.toml").read_text()
    assert entry in project
    assert 'dependencies = ["assay-harness"]' in project


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["task", "mine"], "missing option: --from"),
        (["task", "my-task", "--from", "names.csv"], "invalid name `my-task`"),
        (["task", "mine", "--from", "none.csv"], "file not found: `none.csv`"),
        (["task", "mine", "--from", "notes.txt"], "unknown file type"),
        (["task", "mine", "--from", "names.csv", "--split", "dev"], "no split `dev`"),
        (["task", "mine", "--from", "names.csv", "--text", "q"], "no column `q`\n  at --text\n"),
        (["task", "mine", "--from", "nobody/nothing"], "  at --from\n"),
        (["task", "mine", "--from", "names.csv", "--type", "multiple_choice"], "needs more columns"),
        (["model", "class"], "invalid name `class`"),
    ],
)
def test_invalid_arguments_write_no_files(assay_command: Assay, words: list[str], what: str) -> None:
    called = assay_command("new", *words)
    assert called.code == 2
    assert what in called.err
    assert not Path("mine").exists()


def test_existing_files_are_not_overwritten(assay_command: Assay) -> None:
    Path("mine").mkdir()
    Path("mine/utils.py").write_text("precious")
    called = assay_command("new", "task", "mine", "--from", "names.csv")
    assert called.code == 2 and "`mine/utils.py` already exists" in called.err
    assert Path("mine/utils.py").read_text() == "precious"
    assert not Path("mine/mine.yaml").exists()


CAPITALS = "country,capital\nFrance,Paris\nJapan,Tokyo\nPeru,Lima\n"


def test_two_columns_become_question_and_answer(workspace: Path, assay_command: Assay) -> None:
    (workspace / "capitals.csv").write_text(CAPITALS)
    called = assay_command("new", "task", "capitals", "--from", "capitals.csv")
    assert called.code == 0, called.err
    assert "Country: France\nCapital:\n" in called.out
    assert "target   'Paris'" in called.out
    assert "1 task checked: no errors, no warnings" in called.out
    text = (workspace / "capitals" / "capitals.yaml").read_text("utf-8")
    assert "# the prompt" in text and "# the expected answer" in text
    run = assay_command("run", "capitals/capitals.yaml", "--model", "oracle")
    assert "1.0000" in run.out


def test_text_and_target_are_columns_or_templates(workspace: Path, assay_command: Assay) -> None:
    (workspace / "capitals.csv").write_text(CAPITALS)
    words = ["--text", "The capital of {{country}} is", "--target", "{{capital}}"]
    called = assay_command("new", "task", "capitals", "--from", "capitals.csv", *words)
    assert called.code == 0, called.err
    assert "The capital of France is\n" in called.out
    called = assay_command(
        "new", "task", "countries", "--from", "capitals.csv", "--text", "capital", "--target", "country"
    )
    assert "target   'France'" in called.out


def test_typed_examples_become_documents(workspace: Path, assay_command: Assay) -> None:
    words = [word for text in ("2 + 2 => 4", "3 + 4 => 7", "5 + 1 => 6") for word in ("--example", text)]
    called = assay_command("new", "task", "sums", *words)
    assert called.code == 0, called.err
    assert "3 of 3 documents looked at" in called.out
    assert "target   '4'" in called.out
    wrong = assay_command("new", "task", "other", "--example", "no arrow")
    assert (wrong.code, "QUESTION => ANSWER" in wrong.err) == (2, True)


def test_a_built_in_task_is_copied(workspace: Path, assay_command: Assay) -> None:
    called = assay_command("new", "task", "my_copy", "--like", "quickstart_copy")
    assert called.code == 0, called.err
    assert "1 task checked: no errors" in called.out
    run = assay_command("run", "my_copy/my_copy.yaml", "--model", "oracle", "--limit", "3")
    assert "my_copy" in run.out and "1.0000" in run.out
    unknown = assay_command("new", "task", "x", "--like", "quickstart_cpy")
    assert "did you mean `quickstart_copy`?" in unknown.err
    assert "pytest" not in called.out
    both = assay_command("new", "task", "x", "--like", "quickstart_copy", "--example", "a => b")
    assert "cannot be used together" in both.err


def test_a_copied_task_has_the_files_that_its_data_and_code_name(
    workspace: Path, assay_command: Assay
) -> None:
    called = assay_command("new", "task", "my_shapes", "--like", "quickstart_shapes")
    assert called.code == 0, called.out
    assert "wrote 60 other files in my_shapes/data/shapes" in called.out
    assert not (workspace / "my_shapes" / "data" / "facts.jsonl").exists()
    assay_command("new", "task", "my_shop", "--like", "shopdesk")
    assert (workspace / "my_shop" / "data" / "shop.json").is_file()


def answer_prompts(folder: Path, words: list[str], answers: list[tuple[str, str]]) -> str:
    """Run the command on a terminal, type each answer after its prompt, and return what the terminal shows."""
    ours, theirs = pty.openpty()
    shown, seen = "", 0
    waiting = list(answers)
    with subprocess.Popen(
        [sys.executable, "-m", "assay", "new", "task", *words],
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "dumb", "COLUMNS": "160"},
    ) as process:
        os.close(theirs)
        while select([ours], [], [], 60)[0]:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the command has ended
                break
            shown += piece.decode("utf-8", "replace").replace("\r\n", "\n")
            while waiting and waiting[0][0] in shown[seen:]:
                prompt, answer = waiting.pop(0)
                seen = shown.index(prompt, seen) + len(prompt)
                os.write(ours, f"{answer}\n".encode())
        if waiting:
            process.kill()  # it waits for another answer
    os.close(ours)
    assert not waiting, shown
    assert process.returncode == 0, shown
    return click.unstyle(shown)


def test_a_terminal_is_asked_for_the_columns(workspace: Path) -> None:
    """A wrong name is asked for again, and `-` refuses a guess."""
    answers = [
        ("File or dataset (empty: type examples)", "capitals.csv"),
        ("Column with the question [question]:", "qestion"),
        ("no column `qestion`; columns: question, a, b, answer", ""),
        ("Column with the answer (- for none) [answer]:", "a"),
        ("Column with the choices (- for none) [a,b]:", "-"),
        ("Column with the image (- for none) [-]:", ""),
    ]
    shown = answer_prompts(workspace, ["capitals"], answers)
    assert "generate_until: question `question`, answer `a`" in shown
    assert "target   'Paris'" in shown
    assert "1 task checked: no errors, no warnings" in shown


def test_a_terminal_is_asked_for_examples(workspace: Path) -> None:
    answers = [
        ("File or dataset (empty: type examples)", ""),
        ("Question (empty: done)", "2 + 2"),
        ("Answer", "4"),
        ("Question (empty: done)", "3 + 4"),
        ("Answer", "7"),
        ("Question (empty: done)", ""),
    ]
    shown = answer_prompts(workspace, ["sums"], answers)
    assert "2 of 2 documents looked at" in shown
    rows = [json.loads(line) for line in (workspace / "sums" / "sums.jsonl").read_text("utf-8").splitlines()]
    assert rows == [{"question": "2 + 2", "answer": "4"}, {"question": "3 + 4", "answer": "7"}]
