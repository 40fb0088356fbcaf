from __future__ import annotations

import pickle

import pytest

from assay.core import errors
from assay.core.errors import (
    AssayError,
    CorruptStore,
    ErrorGroup,
    InvalidOption,
    MissingPackage,
    RunInterrupted,
    TaskError,
    TooManyFailures,
    UnknownName,
    UserError,
)
from assay.core.installation import format_install_command


def test_an_error_says_what_where_and_a_hint() -> None:
    error = TaskError("`doc_to_text` names no column", where="sums.yaml:4, doc_to_text", hint="columns: a, b")
    assert str(error) == ("`doc_to_text` names no column\n  at sums.yaml:4, doc_to_text\nhint: columns: a, b")


@pytest.mark.parametrize(
    ("where", "hint", "expected"),
    [
        pytest.param("", "", "what", id="only what"),
        pytest.param("a.yaml:1", "", "what\n  at a.yaml:1", id="a place"),
        pytest.param("", "do this", "what\nhint: do this", id="a hint"),
    ],
)
def test_what_is_not_known_is_left_out(where: str, hint: str, expected: str) -> None:
    assert str(AssayError("what", where=where, hint=hint)) == expected


@pytest.mark.parametrize(
    ("kind", "code"),
    [(AssayError, 1), (UserError, 2), (CorruptStore, 1), (TooManyFailures, 1), (RunInterrupted, 130)],
)
def test_each_branch_of_the_tree_has_its_exit_code(kind: type[AssayError], code: int) -> None:
    assert kind.exit_code == code


def test_every_mistake_of_the_user_exits_with_2() -> None:
    mistakes = [getattr(errors, name) for name in errors.__all__]
    codes = {kind.__name__: kind.exit_code for kind in mistakes if issubclass(kind, UserError)}
    assert set(codes.values()) == {2}
    assert len(codes) > 5


def test_the_tree_at_the_top_of_the_file_is_the_tree_in_the_code() -> None:
    assert errors.__doc__ is not None
    drawn = [line.strip("│├└─ ").split()[0] for line in errors.__doc__.splitlines() if "──" in line]
    assert sorted(["AssayError", *drawn]) == sorted(errors.__all__)


def test_an_unknown_name_brings_the_nearest_one() -> None:
    error = UnknownName.of("metric", "exact_macth", ["acc", "exact_match"], where="gsm8k.yaml:14")
    assert error.what == "no metric is called `exact_macth`"
    assert error.where == "gsm8k.yaml:14"
    assert error.hint == "did you mean `exact_match`? `assay ls metrics` shows all 2"


def test_an_unknown_name_like_no_other_makes_no_guess() -> None:
    assert UnknownName.of("metric", "zzz", ["acc"]).hint == "`assay ls metrics` shows all 1"


def test_the_listing_may_have_another_name_than_the_kind() -> None:
    assert UnknownName.of("task", "zzz", [], ls="tasks --all").hint == "`assay ls tasks --all` shows all 0"


@pytest.mark.parametrize(
    ("extra", "hint"), [("metrics", format_install_command("metrics")), ("", "pip install sacrebleu")]
)
def test_a_missing_package_says_what_to_install(extra: str, hint: str) -> None:
    error = MissingPackage.of("sacrebleu", "the metric `bleu`", extra=extra)
    assert (error.what, error.hint) == ("the metric `bleu` needs the package `sacrebleu`", hint)


@pytest.mark.parametrize(("count", "words"), [(1, "1 problem found"), (3, "3 problems found")])
def test_problems_are_counted(count: int, words: str) -> None:
    assert ErrorGroup([InvalidOption("no")] * count).what.startswith(words)


def test_problems_show_each_problem_in_full() -> None:
    problems = ErrorGroup([InvalidOption("one", hint="first"), TaskError("two", where="b.yaml")])
    assert str(problems) == "one\nhint: first\n\ntwo\n  at b.yaml"


@pytest.mark.parametrize(
    "error",
    [
        TaskError("what", where="here", hint="so"),
        UnknownName.of("metric", "a", ["b"]),
        ErrorGroup([InvalidOption("one", where="x"), TaskError("two")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_the_way_between_processes(error: AssayError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.where, copy.hint) == (str(error), error.where, error.hint)
