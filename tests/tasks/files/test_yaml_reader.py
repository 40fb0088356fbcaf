from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.core.errors import AssayError, TaskError
from assay.tasks.files.helper_functions import HelperFunction
from assay.tasks.files.index import entry_from_file
from assay.tasks.files.task_loader import load_task
from assay.tasks.files.yaml_reader import read_task_file

Write = Callable[..., Path]


def test_every_key_knows_its_line(write: Write) -> None:
    path = write(
        "a.yaml",
        """\
        task: sums
        # a comment
        metric_list:
          - metric: acc
          - metric: f1
            aggregation: mean
        metadata:
          version: 1
        """,
    )
    file = read_task_file(path)
    lines = {key: int(place.rpartition(":")[2]) for key, place in file.places.items()}
    assert lines == {
        "task": 1,
        "metric_list": 3,
        "metric_list[0]": 4,
        "metric_list[0].metric": 4,
        "metric_list[1]": 5,
        "metric_list[1].metric": 5,
        "metric_list[1].aggregation": 6,
        "metadata": 7,
        "metadata.version": 8,
    }
    assert file.places["task"] == f"{path}:1"


def test_a_function_reference_is_kept_with_its_folder_and_line_and_nothing_runs(write: Write) -> None:
    path = write("deep/a.yaml", "task: sums\nprocess_docs: !function utils.clean\n")
    function = read_task_file(path).config["process_docs"]
    assert isinstance(function, HelperFunction)
    assert (function.reference, function.directory, function.where) == (
        "utils.clean",
        path.parent,
        f"{path}:2",
    )


# --- includes --------------------------------------------------------------------------------------


def test_an_included_file_gives_keys_and_the_file_itself_has_the_last_word(write: Write) -> None:
    write("base", "test_split: test\ndoc_to_text: base\nrepeats: 2\n")
    path = write("a.yaml", "task: a\ndoc_to_text: own\ninclude: base\n")
    assert read_task_file(path).config == {
        "test_split": "test",
        "doc_to_text": "own",
        "repeats": 2,
        "task": "a",
    }


def test_of_several_includes_the_later_one_wins(write: Write) -> None:
    write("one", "doc_to_text: one\nrepeats: 1\n")
    write("two", "doc_to_text: two\n")
    path = write("a.yaml", "include: [one, two]\ntask: a\n")
    assert read_task_file(path).config == {"doc_to_text": "two", "repeats": 1, "task": "a"}


def test_a_key_is_replaced_whole_never_merged(write: Write) -> None:
    write("base", "metadata: {version: 1, extra: x}\nmetric_list: [{metric: acc}, {metric: f1}]\n")
    path = write("a.yaml", "include: base\nmetadata: {version: 2}\nmetric_list: [{metric: bleu}]\n")
    config = read_task_file(path).config
    assert config == {"metadata": {"version": 2}, "metric_list": [{"metric": "bleu"}]}


def test_includes_chain_and_each_is_relative_to_the_file_that_says_it(write: Write) -> None:
    write("shared/deep/bottom.yaml", "dataset_path: json\nrepeats: 3\n")
    write("shared/middle.yaml", "include: deep/bottom.yaml\nrepeats: 2\n")
    path = write("tasks/a.yaml", "include: ../shared/middle.yaml\ntask: a\n")
    assert read_task_file(path).config == {"dataset_path": "json", "repeats": 2, "task": "a"}


def test_an_include_may_be_absolute(write: Write) -> None:
    base = write("elsewhere/base.yaml", "repeats: 3\n")
    path = write("tasks/a.yaml", f"include: {base}\ntask: a\n")
    assert read_task_file(path).config["repeats"] == 3


def test_the_same_file_may_be_included_on_two_ways(write: Write) -> None:
    write("bottom", "repeats: 3\n")
    write("left", "include: bottom\nnum_fewshot: 1\n")
    write("right", "include: bottom\n")
    path = write("a.yaml", "include: [left, right]\n")
    assert read_task_file(path).config == {"repeats": 3, "num_fewshot": 1}


def test_an_included_function_belongs_to_the_folder_of_the_file_that_says_it(write: Write) -> None:
    base = write("shared/base.yaml", "process_docs: !function utils.clean\n")
    path = write("tasks/a.yaml", "include: ../shared/base.yaml\n")
    function = read_task_file(path).config["process_docs"]
    assert function.directory.resolve() == base.parent


def test_the_place_of_a_key_is_in_the_file_that_decided_it(write: Write) -> None:
    write("base", "\n\ndoc_to_text: base\nmetric_list:\n  - metric: acc\n  - metric: f1\n")
    path = write("a.yaml", "include: base\nmetric_list:\n  - metric: bleu\n")
    places = read_task_file(path).places
    assert places["doc_to_text"].endswith("base:3")
    assert places["metric_list[0]"] == f"{path}:3"
    assert "metric_list[1]" not in places, "the replaced list had it"


def test_the_task_list_of_an_included_file_is_not_inherited(write: Write) -> None:
    write("base", "task_list: [x]\nrepeats: 2\n")
    assert read_task_file(write("a.yaml", "include: base\ntask: a\n")).config == {"repeats": 2, "task": "a"}


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"a.yaml": "include: a.yaml"}, id="itself"),
        pytest.param({"a.yaml": "include: b", "b": "include: a.yaml"}, id="two files"),
        pytest.param(
            {"a.yaml": "include: b", "b": "include: c", "c": "include: [d, b]", "d": "x: 1"}, id="below"
        ),
        pytest.param({"a.yaml": "include: ../{folder}/a.yaml"}, id="itself, said differently"),
    ],
)
def test_an_include_that_leads_back_is_refused(write: Write, tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        write(name, text.format(folder=tmp_path.name) + "\n")
    with pytest.raises(TaskError, match="is circular") as caught:
        read_task_file(tmp_path / "a.yaml")
    assert caught.value.where.rpartition(":")[2] == "1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task: a\ninclude: nowhere.yaml\n", "included file not found: `nowhere.yaml`"),
        ("task: a\ninclude: [{x: 1}]\n", "must be a file name"),
        ("task: a\ninclude: 5\n", "must be"),
        ("task: a\ninclude: {x: 1}\n", "."),
        ("task: a\ninclude: .\n", "included file not found"),
    ],
)
def test_an_include_that_is_no_file_is_refused_with_its_line(write: Write, text: str, message: str) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        read_task_file(write("a.yaml", text))
    assert caught.value.where.endswith("a.yaml:2")


def test_an_error_in_an_included_file_names_that_file(write: Write) -> None:
    base = write("base", "repeats: 1\n\ttabbed: 2\n")
    with pytest.raises(TaskError) as caught:
        read_task_file(write("a.yaml", "include: base\n"))
    assert caught.value.where.startswith(f"{base}:2")


# --- broken files ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "line", "hint"),
    [
        pytest.param("task: a\nrepeats: [1, 2\n", 3, "", id="an open bracket"),
        pytest.param("task: a\n\tx: 1\n", 2, "spaces", id="a tab"),
        pytest.param("task: a\ndoc_to_text: Question: {{q}}\n", 2, "quote", id="a colon in a text"),
        pytest.param("task: a\nx: !python/object:os.system ls\n", 2, "!function", id="a foreign tag"),
        pytest.param("task: a\nx: !unknown 1\n", 2, "!function", id="an unknown tag"),
        pytest.param("task: a\nx: *nobody\n", 2, "", id="an unknown anchor"),
        pytest.param("task: a\n---\ntask: b\n", 2, "", id="two documents"),
        pytest.param("task: a\n? [1, 2]\n: x\n", 2, "", id="a list as key"),
        pytest.param("task: a\nx: !function\n  - utils.a\n", 2, "", id="a function that is a list"),
    ],
)
def test_broken_yaml_is_refused_with_its_line(write: Write, content: str, line: int, hint: str) -> None:
    path = write("a.yaml", content)
    with pytest.raises(TaskError, match="not valid YAML") as caught:
        read_task_file(path)
    assert caught.value.where.startswith(f"{path}:{line}")
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "content", ["", "# nothing\n", "- a\n- b\n", "just text\n", "5\n", "null\n", "---\n...\n"]
)
def test_a_file_that_is_not_a_mapping_is_refused(write: Write, content: str) -> None:
    with pytest.raises(TaskError, match="must be a mapping") as caught:
        read_task_file(write("a.yaml", content))
    assert "task:" in caught.value.hint


@pytest.mark.parametrize("content", [b"task: \xff\xfe\n", "task: größe\n".encode("latin-1"), b"\x80"])
def test_a_file_that_is_not_utf8_is_refused(write: Write, content: bytes) -> None:
    with pytest.raises(TaskError, match="not UTF-8") as caught:
        read_task_file(write("a.yaml", content))
    assert caught.value.where.endswith("a.yaml")


def test_a_file_that_is_not_there_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.yaml", tmp_path):
        with pytest.raises(TaskError, match="cannot read") as caught:
            read_task_file(path)
        assert caught.value.where == str(path)


def test_nested_anchors_do_not_multiply(write: Write) -> None:
    """A few lines that stand for millions: the values are shared, and so must be their places."""
    lines = ["a0: &a0 [" + ", ".join("x" * 12) + "]"]
    lines += [f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 12) + "]" for n in range(1, 4)]
    file = read_task_file(write("a.yaml", "\n".join(lines) + "\n"))
    assert len(file.places) < 10_000


YAML_PIECES = st.sampled_from(
    "task: |include: |metric_list: |- |  |\n|\t|:|{|}|[|]|,|&a |*a|!function |!function utils.f|!!binary |!!set |"
    "!!timestamp |? |'|\"|>|%|@|`|#|---|...|<<: |*a\n|2020-01-01|0x_|1_0|1e999|.nan|é|\x00|\ufeff|\u2028|~|a.yaml".split(
        "|"
    )
)
HOSTILE = st.one_of(
    st.binary(max_size=80),
    st.lists(YAML_PIECES, max_size=25).map(lambda parts: "".join(parts).encode("utf-8", "surrogatepass")),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=HOSTILE)
def test_whatever_the_bytes_only_our_errors_come_out(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "hostile.yaml"
    path.write_bytes(content)
    with suppress(AssayError):
        entry_from_file(read_task_file(path))
        load_task(path)


KEYS = st.sampled_from(
    "task group tag include dataset_path dataset_kwargs test_split fewshot_split fewshot_config metric_list "
    "filter_list metadata output_type doc_to_text doc_to_choice generation_kwargs repeats num_fewshot process_docs "
    "description gen_prefix should_decontaminate lmms_eval_specific_kwargs nonsense 5 null true".split()
)
SCALARS: Any = st.sampled_from(
    ["5", "-1", "1.5", "true", "null", "text", "''", "2020-01-01", "!function u.f", "!!binary aGk=", ".nan"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
        st.dictionaries(
            st.sampled_from(
                ["metric", "name", "filter", "function", "until", "temperature", "samples", "5", "x"]
            ),
            inner,
            max_size=3,
        ).map(lambda items: "{" + ", ".join(f"{key}: {value}" for key, value in items.items()) + "}"),
    ),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=st.dictionaries(KEYS, VALUES, max_size=6))
def test_whatever_the_keys_hold_only_our_errors_come_out(tmp_path: Path, keys: dict[str, str]) -> None:
    path = tmp_path / "hostile.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in keys.items()))
    with suppress(AssayError):
        entry_from_file(read_task_file(path))
        load_task(path)
