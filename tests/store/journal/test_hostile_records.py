"""Whatever is written in whatever order, closed and opened again in between: the journal gives back the first of each."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assay.core.records.documents import Document
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Failure, Response
from assay.core.records.verdicts import Answer, Evidence, Score, Unscored, Verdict
from assay.store.journal.journal import Journal
from assay.store.journal.rows import replace_surrogates

TEXTS = st.one_of(
    st.text(max_size=12),
    st.lists(st.sampled_from(["\x00", "\ud800", "'", '"', ";--", "{", "\n", "\U0001f600", "é"])).map("".join),
)
MARKS = st.sampled_from([f"{n:064x}" for n in range(6)])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("responses"), st.lists(st.tuples(MARKS, TEXTS), max_size=4)),
        st.tuples(st.just("failures"), st.lists(st.tuples(MARKS, TEXTS), max_size=3)),
        st.tuples(st.just("judged"), st.lists(st.tuples(st.integers(0, 3), TEXTS), max_size=3)),
        st.tuples(st.just("documents"), st.lists(st.tuples(st.integers(0, 3), TEXTS), max_size=3)),
        st.tuples(st.just("again"), st.just([])),
    ),
    max_size=12,
)


def write(journal: Journal, what: str, given_rows: list[tuple[Any, str]]) -> None:
    if what == "responses":
        made = [(mark, Response(request_id="r", value=text, finish="stop")) for mark, text in given_rows]
        journal.add_responses(made, source="model").result()
    elif what == "failures":
        lost = [(mark, Failure(request_id="r", kind=text, message=text)) for mark, text in given_rows]
        journal.add_failures(lost).result()
    elif what == "documents":
        request = Generate(task="t", document=0, prompt=Prompt.of_text("?"), settings=Settings({}))
        rows = [
            (Document(task="t", index=index, fields={text: 1, "q": text}), text, [request], ["f"])
            for index, text in given_rows
        ]
        journal.add_documents(rows).result()
    elif what == "judged":
        index_rows = dict(given_rows)
        verdicts: list[Verdict] = []
        for index, text in index_rows.items():
            verdicts += [
                Score(document=index, metric="m", pipeline=text, value=1.0),
                Evidence(document=index, metric="e", pipeline="p", value=(text, [text])),
                Unscored(document=index, metric="u", pipeline="p", why=text),
            ]
        answers = [Answer(document=index, pipeline="p", values=(text,)) for index, text in index_rows.items()]
        outcomes = [(index, "scored", text) for index, text in index_rows.items()]
        journal.add_judged("t", outcomes, answers, verdicts).result()


@given(steps=STEPS)
def test_the_first_response_stays_the_last_judgement_counts_and_failures_are_no_answers(
    steps: list[tuple[str, list[tuple[Any, str]]]],
) -> None:
    responses: dict[str, str] = {}
    failures: list[tuple[str, str]] = []
    judged: dict[int, str] = {}
    documents: dict[int, str] = {}
    with TemporaryDirectory() as folder:
        journal = Journal.open_for_writing(Path(folder) / "run")
        try:
            for what, rows in steps:
                if what == "again":
                    journal.close()
                    journal = Journal.open_for_writing(Path(folder) / "run")
                write(journal, what, rows)
                if what == "responses":
                    responses = dict(rows) | responses
                elif what == "failures":
                    failures += rows
                elif what == "judged":
                    judged |= dict(rows)
                elif what == "documents":
                    documents |= dict(rows)
            found = journal.find([f"{n:064x}" for n in range(6)])
            assert {mark: one.value for mark, one in found.items()} == responses
            assert journal.count_rows("failures") == len(failures)
            assert sorted(journal.finished_documents("t")) == sorted(judged)
            scores = {
                document: pipeline
                for pipeline, metric, document, _, _ in journal.read_verdicts("t")
                if metric == "m"
            }
            assert {key: replace_surrogates(text) for key, text in scores.items()} == {
                key: replace_surrogates(text) for key, text in judged.items()
            }
            asked = {index: json.loads(fields)["q"] for index, fields, _, _ in journal.read_documents("t")}
            assert {index: replace_surrogates(text) for index, text in asked.items()} == {
                index: replace_surrogates(text) for index, text in documents.items()
            }
        finally:
            journal.close()
