"""Tests of few-shot sampling."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import TaskError
from assay.tasks.data.json_files import JsonLines
from assay.tasks.data.rows import Rows
from assay.tasks.prompts import fewshot_examples
from assay.tasks.prompts.fewshot_examples import FewshotSampler, cache_examples
from assay.tasks.prompts.turns import Turn
from assay.tasks.task import Task

POOL = [{"n": number} for number in range(20)]


def test_an_example_is_written_once_however_often_it_is_drawn() -> None:
    written: list[int] = []

    def make(at: int) -> list[Turn]:
        written.append(at)
        return [Turn("user", str(at))]

    turns = cache_examples(make, {})
    assert [turn.content for turn in turns([3, 1]) + turns([1, 3, 2])] == ["3", "1", "1", "3", "2"]
    assert written == [3, 1, 2]


def test_of_a_huge_pool_only_some_examples_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fewshot_examples, "_MAX_CACHED_EXAMPLES", 2)
    written: list[int] = []

    def make(at: int) -> list[Turn]:
        written.append(at)
        return [Turn("user", str(at))]

    turns = cache_examples(make, {})
    for _ in range(2):
        assert [turn.content for turn in turns([5, 6, 7])] == ["5", "6", "7"]
    assert written == [5, 6, 7, 7]


@pytest.mark.parametrize("sampler", ["pick", "pick_like_lmms_eval"])
@given(
    seed=st.integers(0, 2**32),
    values=st.lists(st.integers(0, 3), min_size=4, max_size=12),
    count=st.integers(1, 3),
    chunk=st.integers(1, 5),
)
def test_examples_drawn_ahead_are_those_drawn_one_by_one(
    sampler: str, seed: int, values: list[int], count: int, chunk: int
) -> None:
    pool = Rows([{"n": value} for value in values])  # rows that are equal to the document are drawn again

    def draw(*, ahead: bool) -> list[list[int]]:
        own = FewshotSampler("default", pool, seed)
        found = []
        for number, row in enumerate(pool):
            if ahead and number % chunk == 0:
                own.prefetch(count + 1, chunk, ())
            if sampler == "pick":
                try:
                    found.append(own.pick(count, row))
                except TaskError:
                    found.append([])
            else:
                found.append(own.pick_like_lmms_eval(count, row, one_more=True))
        return found

    assert draw(ahead=True) == draw(ahead=False)


@pytest.mark.parametrize("form", ["lines", "table"])
def test_rows_of_a_large_pool_are_read_together(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"n": number} for number in range(300)]
    if form == "lines":
        file = tmp_path / "pool.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        lines = JsonLines(file)
        pool: Any = Rows.wrap(lines, columns=lines.columns)
        monkeypatch.setattr(JsonLines, "__getitem__", None)
    else:
        datasets = pytest.importorskip("datasets")
        pool = datasets.Dataset.from_list(rows)
        monkeypatch.setattr(type(pool), "__getitem__", _refuse_single_rows(type(pool).__getitem__))
    sampler = FewshotSampler("default", pool, 7)
    sampler.prefetch(5, 20, ())
    for _ in range(20):
        drawn = sampler.pick(5)
        assert [sampler.get_row(index)["n"] for index in drawn] == drawn


@pytest.mark.parametrize("pick", ["pick", "pick_like_lmms_eval"])
def test_first_n_reads_the_first_rows_of_a_large_pool_once(
    tmp_path: Path, pick: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pool.jsonl"
    file.write_text("".join(json.dumps({"n": number // 3}) + "\n" for number in range(300)), "utf-8")
    lines = JsonLines(file)
    pool = Rows.wrap(lines, columns=lines.columns)
    opened: list[Path] = []
    read = JsonLines.__iter__
    monkeypatch.setattr(JsonLines, "__getitem__", None)
    monkeypatch.setattr(JsonLines, "__iter__", lambda rows: opened.append(rows.path) or read(rows))  # type: ignore[func-returns-value]
    sampler = FewshotSampler("first_n", pool, 7)
    for number in range(20):
        document = {"n": number % 4}
        if pick == "pick":
            drawn = [index for index in range(10) if index // 3 != number % 4][:5]
            assert sampler.pick(5, document) == drawn
        else:
            drawn = [index for index in range(6) if index // 3 != number % 4][:5]
            assert sampler.pick_like_lmms_eval(5, document, one_more=True) == drawn
    assert opened == [file]


def test_first_n_looks_beyond_many_rows_that_are_equal_to_the_document() -> None:
    pool = [{"n": 0}] * 100 + [{"n": 1}, {"n": 2}]
    sampler = FewshotSampler("first_n", pool, 7)
    assert sampler.pick(2, {"n": 0}) == sampler.pick(2, {"n": 0}) == [100, 101]
    with pytest.raises(TaskError, match="needs 3 few-shot examples, but the pool has 2"):
        sampler.pick(3, {"n": 0})


def _refuse_single_rows(get: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def get_some(rows: Any, key: Any) -> Any:
        assert not isinstance(key, int)
        return get(rows, key)

    return get_some


# --- sampling --------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**32), size=st.integers(1, 30), count=st.integers(1, 30), documents=st.integers(1, 5)
)
def test_the_default_sampler_is_pythons_sample_consumed_in_document_order(
    seed: int, size: int, count: int, documents: int
) -> None:
    count = min(count, size)
    sampler, generator = FewshotSampler("default", POOL * 2, seed), random.Random(seed)
    sampler.pool = (POOL * 2)[:size]
    for _ in range(documents):
        assert sampler.pick(count) == generator.sample(range(size), count)


@given(
    seed=st.integers(0, 2**32),
    asked=st.lists(st.integers(0, 19), min_size=1, max_size=5),
    count=st.integers(1, 19),
)
def test_the_document_itself_is_left_out_as_lm_eval_does_it(seed: int, asked: list[int], count: int) -> None:
    sampler, generator = FewshotSampler("default", POOL, seed), random.Random(seed)
    for at in asked:
        expected = [row for row in generator.sample(POOL, count + 1) if row != POOL[at]][:count]
        assert [POOL[position] for position in sampler.pick(count, POOL[at])] == expected


@given(seed=st.integers(0, 1000), copies=st.integers(1, 5), count=st.integers(1, 4))
def test_all_copies_of_the_document_are_left_out(seed: int, copies: int, count: int) -> None:
    pool = [{"n": 0}] * copies + [{"n": number} for number in range(1, 6)]
    sampler, generator = FewshotSampler("default", pool, seed), random.Random(seed)
    for _ in range(3):
        expected = [row for row in generator.sample(pool, count + 1) if row != pool[0]][:count]
        if len(expected) < count:
            expected = generator.sample([row for row in pool if row != pool[0]], count)
        assert [pool[at] for at in sampler.pick(count, pool[0])] == expected


def test_first_n_takes_the_first_without_the_document_itself() -> None:
    sampler = FewshotSampler("first_n", POOL, 1)
    assert sampler.pick(3) == sampler.pick(3) == [0, 1, 2]
    assert sampler.pick(3, {"n": 1}) == [0, 2, 3]
    assert sampler.pick(3, {"n": 99}) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["default", "first_n"])
def test_the_whole_pool_may_be_taken(kind: str) -> None:
    assert sorted(FewshotSampler(kind, POOL, 1).pick(20)) == list(range(20))


@pytest.mark.parametrize(
    ("kind", "pool", "document", "count", "has"),
    [
        ("default", 3, None, 4, 3),
        ("default", 0, None, 1, 0),
        ("default", 3, {"n": 0}, 3, 2),
        ("first_n", 3, None, 4, 3),
        ("first_n", 3, {"n": 0}, 3, 2),
        ("first_n", 0, None, 1, 0),
    ],
)
def test_a_pool_too_small_is_refused_with_its_size(
    kind: str, pool: int, document: Any, count: int, has: int
) -> None:
    with pytest.raises(
        TaskError, match=f"the task needs {count} few-shot examples, but the pool has {has}\\b"
    ) as caught:
        FewshotSampler(kind, POOL[:pool], 1, where="a.yaml:5").pick(count, document)
    assert (caught.value.where, "fewshot_split" in caught.value.hint) == ("a.yaml:5", True)


def test_an_unknown_sampler_is_refused() -> None:
    with pytest.raises(TaskError, match="`balanced`") as caught:
        FewshotSampler("balanced", POOL, 1, where="a.yaml:5")
    assert "first_n" in caught.value.hint


LMMS: dict[str, Any] = {
    "dialect": "lmms_eval",
    "splits": {"train": [{"q": "T1", "a": "1"}, {"q": "T2", "a": "2"}]},
    "training_split": "train",
    "num_fewshot": 1,
}


def first_context(task: Task) -> str:
    (_, (request, *_)) = next(task.render())
    return request.prompt.text


@pytest.mark.parametrize(
    "key",
    [
        {"doc_to_text": "other {{q}}"},
        {"doc_to_target": "other {{a}}"},
        {"fewshot_delimiter": "##", "target_delimiter": "--"},
        {"samples": [{"q": "S", "a": "s"}]},
        {"gen_prefix": "So"},
        {"split": "test"},
    ],
    ids=lambda key: next(iter(key)),
)
def test_lmms_eval_reads_only_the_sampler(make_task: Callable[..., Task], key: dict[str, Any]) -> None:
    task = make_task(**LMMS, fewshot_config={"sampler": "first_n", **key})
    assert first_context(task) == "T1 1\n\nQ0"


def test_lmms_eval_keeps_the_delimiter_when_no_example_remains(make_task: Callable[..., Task]) -> None:
    same = {**LMMS, "splits": {"train": [{"q": "Q0", "a": "A0"}]}}
    task = make_task(**same, fewshot_config={"sampler": "first_n"})
    assert first_context(task) == "\n\nQ0"


def test_lmms_eval_needs_as_many_examples_as_it_draws(make_task: Callable[..., Task]) -> None:
    task = make_task(**{**LMMS, "num_fewshot": 3}, fewshot_config={"sampler": "default"})
    with pytest.raises(TaskError, match="needs 3 few-shot examples, but the pool has 2"):
        first_context(task)
