"""The side index of a run: the same as the journal says, however it came about."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.core.records.documents import Document
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Response
from assay.core.records.verdicts import Answer, Score
from assay.store.documents.details import read_document, read_document_summaries
from assay.store.index.document_index import DocumentIndex, index_folder
from assay.store.index.index_pool import IndexPool
from assay.store.index.queries import (
    DocumentQuery,
    compute_breakdown,
    count_facets,
    list_categories,
    select_documents,
)
from assay.store.journal.journal import Journal

ABOUT = {"sums": {"pipelines": ["none"], "metrics": ["acc", "f1"], "documents": 9}}


class Writer:
    """A journal that is being written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.read: list[Journal] = []
        self.journal = Journal.open_for_writing(folder)
        self.journal.set_facts({"digest": "d", "tasks": ABOUT, "started": 1.0, "top": ["sums"]}).result()

    def index(self, folder: Path | None = None) -> DocumentIndex:
        """An index that knows nothing yet."""
        self.read.append(Journal.open_readonly(self.folder))
        return DocumentIndex(self.read[-1], folder or index_folder(self.folder), ABOUT)

    def close(self) -> None:
        for journal in (*self.read, self.journal):
            journal.close()

    def ask(self, numbers: Iterable[int], task: str = "sums") -> None:
        given = []
        for n in numbers:
            document = Document(task=task, index=n, fields={"question": f"what is {n}", "level": f"l{n % 2}"})
            request = Generate(
                task=task,
                document=n,
                index=0,
                prompt=Prompt.of_text(f"Q{n}"),
                settings=Settings({"until": ["."]}),
            )
            given.append((document, f"target {n}", [request], [f"mark-{task}-{n}"]))
        self.journal.add_documents(given).result()

    def answer(self, numbers: Iterable[int], task: str = "sums") -> None:
        self.journal.add_responses(
            [(f"mark-{task}-{n}", Response(request_id="", value=f"Reply {n}" + "!" * n)) for n in numbers],
            source="model",
        ).result()

    def judge(self, numbers: Iterable[int], outcome: str = "scored", task: str = "sums") -> None:
        numbers = list(numbers)
        self.journal.add_judged(
            task,
            [(n, outcome, "") for n in numbers],
            [Answer(document=n, pipeline="none", values=(f"a{n}",)) for n in numbers],
            [Score(document=n, metric="acc", pipeline="none", value=float(n % 3 == 0)) for n in numbers]
            if outcome == "scored"
            else [],
        ).result()


@pytest.fixture
def writer(tmp_path: Path) -> Any:
    made = Writer(tmp_path / "run")
    yield made
    made.close()


def load_index(writer: Writer) -> DocumentIndex:
    index = writer.index()
    index.load()
    index.update()
    return index


def positions(index: DocumentIndex, **query: Any) -> list[int]:
    columns, rows = select_documents(index, DocumentQuery(**query))
    found: list[int] = columns.position[rows].tolist()
    return found


def test_documents_are_filtered_sorted_and_searched(writer: Writer) -> None:
    writer.ask(range(9))
    writer.answer(range(9))
    writer.judge(range(8))
    index = load_index(writer)
    assert positions(index) == list(range(9))
    assert positions(index, descending=True) == list(range(8, -1, -1))
    assert positions(index, outcomes=("open",)) == [8]
    assert positions(index, low=1) == [0, 3, 6]
    assert positions(index, high=0.5) == [1, 2, 4, 5, 7]
    assert positions(index, text="reply 7") == [7]
    assert positions(index, text="TARGET 4") == [4]
    assert positions(index, categories=(("level", "l1"),)) == [1, 3, 5, 7]
    assert positions(index, categories=(("level", "none of them"),)) == []
    assert positions(index, sort="length", descending=True)[:2] == [8, 7]
    assert positions(index, sort="score") == [1, 2, 4, 5, 7, 0, 3, 6, 8]
    assert positions(index, sort="score", descending=True) == [0, 3, 6, 1, 2, 4, 5, 7, 8]
    assert positions(index, task="another") == []
    counts = count_facets(index.columns, np.arange(9))
    assert (counts.outcomes, counts.right, counts.wrong) == ({"scored": 8, "open": 1}, 3, 5)
    assert list_categories(index.columns) == {"level": {"l0": 5, "l1": 4}}
    assert [
        (one.value, one.documents, one.mean) for one in compute_breakdown(index.columns, "sums", "level")
    ] == [
        ("l0", 4, 0.5),
        ("l1", 4, 0.25),
    ]


def test_an_index_made_in_pieces_is_the_index_made_at_once(writer: Writer, tmp_path: Path) -> None:
    index = load_index(writer)
    assert len(index.columns) == 0
    ask, answer, judge = writer.ask, writer.answer, writer.judge
    steps: list[list[tuple[Any, ...]]] = [
        [(ask, range(4))],
        [(answer, range(4)), (judge, [1, 3])],
        [(ask, range(4, 9)), (judge, [0], "failed")],
        [(partial(ask, task="more"), range(3)), (answer, range(4, 9))],
        [(judge, [2, 5, 4]), (judge, [7], "judge-failed")],
        [(judge, [0, 6, 7, 8]), (partial(answer, task="more"), range(3))],
        [(partial(judge, task="more"), range(3))],
    ]
    for step in steps:
        for act, *given in step:
            act(*given)
        assert index.update()
        assert not index.update()
    at_once = writer.index(tmp_path / "elsewhere")
    at_once.update()
    for name, column in at_once.columns.to_arrays().items():
        assert np.array_equal(column, index.columns.to_arrays()[name], equal_nan=column.dtype.kind == "f"), (
            name
        )
    for word in ("reply", "target 3", "reply 8", "what is 2"):
        assert positions(index, text=word) == positions(at_once, text=word)
    assert index.is_complete()


def test_documents_that_could_not_be_asked_are_there_too(writer: Writer) -> None:
    writer.ask([0, 2])
    writer.judge([1], "failed")
    index = load_index(writer)
    assert positions(index) == [0, 1, 2]
    assert positions(index, outcomes=("failed",)) == [1]
    writer.ask([1])
    writer.judge([1])
    index.update()
    assert positions(index) == [0, 1, 2]
    assert positions(index, text="what is 1") == [1]


def test_documents_asked_out_of_order_are_noticed(writer: Writer) -> None:
    writer.ask([5])
    writer.judge([5])
    index = load_index(writer)
    writer.ask([2])
    index.update()
    assert not index.is_complete()
    index.reset()
    index.update()
    assert index.is_complete() and positions(index) == [2, 5]


def test_the_next_visit_finds_the_index_as_it_was(writer: Writer) -> None:
    writer.ask(range(9))
    writer.answer(range(9))
    writer.judge(range(9))
    load_index(writer).save()
    again = writer.index()
    assert again.load()
    assert not again.update()
    assert positions(again, text="reply 7") == [7]
    writer.ask(range(9, 12))
    assert again.update()
    assert len(again.columns) == 12


def test_half_characters_and_no_texts_at_all_are_survived(writer: Writer) -> None:
    writer.ask(range(2))
    answers = [
        ("mark-sums-0", Response(request_id="", value="half \ud83d a face")),
        ("mark-sums-1", Response(request_id="", value="")),
    ]
    writer.journal.add_responses(answers, source="model").result()
    load_index(writer).save()
    again = writer.index()
    assert again.load()
    assert positions(again, text="half") == [0]
    assert positions(again, text="face nothing") == []


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 not really", b"\x00" * 100])
def test_a_damaged_index_is_made_anew(writer: Writer, damage: bytes) -> None:
    writer.ask(range(3))
    load_index(writer).save()
    (index_folder(writer.folder) / "columns.npz").write_bytes(damage)
    again = writer.index()
    assert not again.load()
    again.update()
    assert len(again.columns) == 3


def test_another_journal_in_the_same_place_is_noticed(writer: Writer) -> None:
    writer.ask(range(3))
    load_index(writer).save()
    writer.journal.close()
    (writer.folder / "journal.sqlite").rename(writer.folder / "journal.old.sqlite")
    second = Writer(writer.folder)
    second.ask(range(2))
    again = load_index(second)
    assert len(again.columns) == 2
    second.close()
    writer.journal = Journal.open_for_writing(writer.folder)


def test_the_keeper_of_indexes_follows_a_run_that_goes_on(writer: Writer) -> None:
    writer.ask(range(3))
    indexes = IndexPool()
    try:
        state = indexes.get_state(writer.folder, wait_s=10)
        assert state.index is not None and len(state.index.columns) == 3
        writer.ask(range(3, 6))
        state.checked = 0.0
        assert indexes.get_state(writer.folder, wait_s=10, fresh=True).index is state.index
        assert len(state.index.columns) == 6
    finally:
        indexes.close()


def test_the_keeper_says_what_is_wrong_with_a_run(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_bytes(b"nothing of ours" * 100)
    indexes = IndexPool()
    assert indexes.get_state(tmp_path, wait_s=10).why
    indexes.close()


def test_one_document_is_read_with_everything_about_it(writer: Writer) -> None:
    writer.ask(range(3))
    writer.answer([0, 1])
    writer.judge([0, 1])
    index = load_index(writer)
    for find in (None, index.fingerprints.find):
        record = read_document(index.journal, "sums", 1, find)
        assert record is not None
        assert record.asked[0].response is not None
        assert record.asked[0].response.value == "Reply 1!"
        assert record.asked[0].settings == {"until": ["."]}
        assert (record.outcome, record.target, record.prompts) == ("scored", "target 1", ["Q1"])
        assert record.verdicts == [("none", "acc", "score", 0.0, "")]
    still_open = read_document(index.journal, "sums", 2)
    assert still_open is not None and still_open.outcome == "open"
    assert read_document(index.journal, "sums", 7) is None
    assert read_document(index.journal, "other", 0) is None
    lines = read_document_summaries(index.journal, [2, 0])
    assert [(line.id, line.outcome, line.answers) for line in lines] == [
        (2, "open", {}),
        (0, "scored", {"none": ["a0"]}),
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_stopped_update_leaves_no_open_files(writer: Writer, tmp_path: Path) -> None:
    writer.ask(range(4))
    index = writer.index(tmp_path / "index")

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.update(stop)
    opened = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.exists()]
    assert [path for path in opened if str(tmp_path / "index") in path] == []
    assert index.update()
