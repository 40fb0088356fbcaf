from __future__ import annotations

import json
import math
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.core.errors import CorruptStore, RunLocked
from assay.core.records.documents import Document
from assay.core.records.messages import Image, Message, Prompt, Text
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.records.responses import Failure, LogProbability, Response, Usage
from assay.core.records.verdicts import Answer, Estimate, Evidence, Score, Unscored
from assay.store.journal import response_index
from assay.store.journal.journal import JOURNAL_FILE, Journal

PROMPT = Prompt.of_text("2+2=")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal.open_for_writing(tmp_path / "run")
    yield journal
    journal.close()


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


# --- facts -----------------------------------------------------------------------------------------


def test_facts_are_kept_and_may_be_replaced(journal: Journal) -> None:
    journal.set_facts({"model": "embedded", "tasks": {"a": {"n": [1, 2]}}, "none": None}).result()
    journal.set_facts({"model": "other"}).result()
    assert journal.read_facts() == {"model": "other", "tasks": {"a": {"n": [1, 2]}}, "none": None}


def test_a_fact_that_is_not_json_is_stored_as_text(journal: Journal, tmp_path: Path) -> None:
    journal.set_facts({"path": tmp_path}).result()
    assert journal.read_facts() == {"path": str(tmp_path)}


# --- documents and requests ------------------------------------------------------------------------


def test_documents_and_requests_are_kept_and_each_prompt_once(journal: Journal) -> None:
    settings = Settings({"until": ["\n"]})
    requests: list[list[Request]] = [
        [
            Generate(task="a", document=0, repeat=0, prompt=PROMPT, settings=settings),
            Generate(task="a", document=0, repeat=1, prompt=PROMPT, settings=settings),
        ],
        [Likelihood(task="a", document=1, index=2, prompt=PROMPT, continuation=" 4")],
        [RollingLikelihood(task="a", document=2, prompt=Prompt.of_text("other"))],
    ]
    names = [["f0", "f1"], ["f2"], ["f3"]]
    documents = [
        (Document(task="a", index=index, fields={"q": "é"}), ["x", index], requests[index], names[index])
        for index in range(3)
    ]
    journal.add_documents(documents).result()
    assert [journal.count_rows(table) for table in ("documents", "requests")] == [3, 4]
    [(content,)] = journal.query("SELECT requests FROM asked WHERE id = 0")
    assert json.loads(content)["prompts"] == ["2+2="]
    assert list(journal.query("SELECT prompt FROM requests")) == [("2+2=",)] * 3 + [("other",)]
    rows = list(
        journal.query("SELECT document, number, repeat, kind, argument, fingerprint FROM requests ORDER BY 6")
    )
    assert rows == [
        (0, 0, 0, "generate", settings.digest[:8], "f0"),
        (0, 0, 1, "generate", settings.digest[:8], "f1"),
        (1, 2, 0, "likelihood", " 4", "f2"),
        (2, 0, 0, "rolling", "", "f3"),
    ]
    assert journal.read_facts() == {f"settings:{settings.digest[:8]}": {"until": ["\n"]}}
    assert list(journal.query("SELECT fields, target FROM documents WHERE document = 2")) == [
        ('{"q": "é"}', '{"target": ["x", 2]}')
    ]


@pytest.mark.parametrize("resumed", [False, True])
def test_settings_whose_digests_begin_alike_keep_apart(tmp_path: Path, resumed: bool) -> None:
    first, second = Settings({"seed": 1}), Settings({"seed": 2})
    object.__setattr__(second, "_digest", first.digest[:8] + "0" * 24)
    journal = Journal.open_for_writing(tmp_path)
    for index, one in enumerate((first, second)):
        if index and resumed:
            journal.close()
            journal = Journal.open_for_writing(tmp_path)
        request = Generate(task="a", document=index, prompt=PROMPT, settings=one)
        document = Document(task="a", index=index, fields={})
        journal.add_documents([(document, "x", [request], [f"f{index}"])]).result()
    facts = journal.read_facts()
    keys = [key for (key,) in journal.query("SELECT argument FROM requests ORDER BY document")]
    assert [facts[f"settings:{key}"] for key in keys] == [{"seed": 1}, {"seed": 2}]
    journal.close()


def test_adding_the_same_again_changes_nothing(journal: Journal) -> None:
    document = Document(task="a", index=0, fields={"q": 1})
    request = Generate(task="a", document=0, prompt=PROMPT, settings=Settings({}))
    for _ in range(2):
        journal.add_documents([(document, "x", [request], ["f"])]).result()
        journal.add_responses([("f", Response(request_id="r", value="x"))], source="model").result()
    assert [journal.count_rows(table) for table in ("documents", "requests", "responses")] == [1, 1, 1]


def test_a_chat_is_stored_as_messages_with_media_by_hash(journal: Journal) -> None:
    picture = Image(digest="abc", load=lambda: None, source="x.png")
    prompt = Prompt((Message("system", (Text("S"),)), Message("user", (picture, Text("Q")))), chat=True)
    request = Likelihood(task="a", document=0, prompt=prompt, continuation="x")
    document = Document(task="a", index=0, fields={})
    journal.add_documents([(document, "", [request], ["f"])]).result()
    [(content,)] = journal.query("SELECT prompt FROM requests")
    assert content == (
        '{"messages": [{"role": "system", "content": [{"type": "text", "text": "S"}]}, '
        '{"role": "user", "content": [{"type": "image", "digest": "abc", "source": "x.png"}, '
        '{"type": "text", "text": "Q"}]}], "chat": true}'
    )


def test_fields_that_are_not_json_are_described(journal: Journal) -> None:
    fields = {"data": b"123", "pair": (1, 2), "array": np.arange(3), "set": {1}}
    journal.add_documents([(Document(task="a", index=0, fields=fields), b"x", [], [])]).result()
    [(kept, target)] = journal.query("SELECT fields, target FROM documents")
    assert kept == '{"data": "<3 bytes>", "pair": [1, 2], "array": [0, 1, 2], "set": [1]}'
    assert target == '{"target": "<1 bytes>"}'


# --- responses -------------------------------------------------------------------------------------

RESPONSES = [
    Response(request_id="r", value="four"),
    Response(request_id="r", value=""),
    Response(request_id="r", value="é\x00\n\U0001f600", finish="stop"),
    Response(request_id="r", value="half \ud83d of it", reasoning="\udc00"),
    Response(
        request_id="r",
        value="x",
        finish="length",
        usage=Usage(3, 0),
        seconds=0.25,
        reasoning="because",
    ),
    Response(request_id="r", value=LogProbability(-1.5, True)),
    Response(request_id="r", value=LogProbability(-1.5, False), usage=Usage(0, 0), seconds=0.0),
    Response(request_id="r", value=LogProbability(-math.inf, False)),
    Response(request_id="r", value=LogProbability(0.0, True)),
    Response(request_id="r", value=LogProbability(-0.1 - 0.2, False)),
    Response(request_id="r", value=LogProbability(5e-324, False)),
]


@pytest.mark.parametrize("response", RESPONSES, ids=lambda response: ascii(response.value))
def test_a_response_is_given_back_as_it_was_under_its_fingerprint(
    journal: Journal, response: Response
) -> None:
    journal.add_responses([("f", response)], source="model").result()
    found = journal.find(["f"])["f"]
    assert found == Response(
        request_id="f",
        value=response.value,
        finish=response.finish,
        usage=response.usage,
        seconds=response.seconds,
        reasoning=response.reasoning,
    )
    if isinstance(response.value, LogProbability) and isinstance(found.value, LogProbability):
        assert bits(found.value.total) == bits(response.value.total)


def test_a_log_probability_that_is_not_a_number_stays_one(journal: Journal) -> None:
    journal.add_responses(
        [("f", Response(request_id="r", value=LogProbability(math.nan, True)))], source="m"
    ).result()
    value = journal.find(["f"])["f"].value
    assert isinstance(value, LogProbability)
    assert math.isnan(value.total) and value.greedy


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(totals=st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
def test_log_probabilities_are_kept_bit_for_bit(journal: Journal, totals: list[float]) -> None:
    named = {f"f{bits(total).hex()}": total for total in totals}
    given = [(name, Response(request_id="r", value=LogProbability(total))) for name, total in named.items()]
    journal.add_responses(given, source="model").result()
    for name, response in journal.find(list(named)).items():
        assert isinstance(response.value, LogProbability)
        assert bits(response.value.total) == bits(named[name])


def test_only_what_is_known_is_found_however_much_is_asked_for(journal: Journal) -> None:
    known = [f"f{number}" for number in range(0, 3000, 3)]
    journal.add_responses(
        [(name, Response(request_id="r", value=name)) for name in known], source="model"
    ).result()
    found = journal.find([f"f{number}" for number in range(3000)])
    assert {name: response.value for name, response in found.items()} == {name: name for name in known}
    assert journal.find([]) == {}


def test_failures_are_all_kept_and_never_found_as_responses(journal: Journal) -> None:
    failure = Failure(request_id="r", kind="timeout", message="60 s \ud800", attempts=3)
    journal.add_failures([("f", failure)]).result()
    journal.add_failures([("f", failure)]).result()
    assert journal.count_rows("failures") == 2
    assert journal.find(["f"]) == {}


def test_the_first_response_stays_however_many_came_after_it(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_index, "MAX_RECENT", 8)
    names = [f"f{number}" for number in range(50)]
    for value in ("first", "second"):
        for name in names:
            journal.add_responses([(name, Response(request_id="", value=value))], source="model").result()
    assert journal.count_rows("responses") == 50
    found = journal.find(names)
    assert {response.value for response in found.values()} == {"first"}
    assert set(found) == set(names)
    with closing(Journal.open_readonly(journal.path.parent)) as reader:
        assert reader.find(names) == found
        journal.add_responses([("new", Response(request_id="", value="x"))], source="model").result()
        assert set(reader.find(["new", "nobody"])) == {"new"}, "who reads keeps up with who writes"


def test_a_reader_loads_the_index_only_for_many_lookups(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"f{number}" for number in range(200)]
    journal.add_responses(
        [(name, Response(request_id="r", value=name)) for name in names], source="model"
    ).result()
    indexed: list[str] = []
    add = response_index.ResponseIndex.add

    def record_and_add(index: response_index.ResponseIndex, name: str, row: int) -> None:
        indexed.append(name)
        add(index, name, row)

    monkeypatch.setattr(response_index.ResponseIndex, "add", record_and_add)
    with closing(Journal.open_readonly(journal.path.parent)) as reader:
        for name in names[:5]:
            assert reader.find([name, "missing"])[name].value == name
        assert indexed == []
        for name in names:
            assert reader.find([name])[name].value == name
        assert sorted(indexed) == sorted(names), "once"
    with closing(Journal.open_readonly(journal.path.parent)) as reader:
        assert list(reader.find(names)) == names
        assert len(indexed) == 400


# --- verdicts --------------------------------------------------------------------------------------

VALUES: list[Any] = [
    1.0,
    0,
    0.1 + 0.2,
    -0.0,
    math.inf,
    -math.inf,
    True,
    False,
    10**30,
    "text",
    "",
    None,
    (1, 0.5),
    [("gold", "prediction"), [1, (2,)]],
    {"domain": "logos", "correct": True},
    {1: "a", (2, 3): "b"},
    {"$tuple": [1]},
    {1, 2},
    b"bytes",
    "half \ud83d",
    [math.inf, -math.inf],
]


@pytest.mark.parametrize("value", VALUES, ids=ascii)
@pytest.mark.parametrize("kind", [Score, Evidence])
def test_a_verdict_is_given_back_as_it_was(journal: Journal, kind: Any, value: Any) -> None:
    verdict = kind(document=0, metric="m", pipeline="p", value=value)
    journal.add_judged("a", [(0, "scored", "")], [], [verdict]).result()
    [(pipeline, metric, document, name, found)] = journal.read_verdicts("a")
    assert (pipeline, metric, document, name) == ("p", "m", 0, kind.__name__.lower())
    assert (found, type(found)) == (value, type(value))
    if isinstance(value, float):
        assert bits(found) == bits(value)


@pytest.mark.parametrize("kind", [Score, Evidence])
def test_nan_stays_nan(journal: Journal, kind: Any) -> None:
    verdict = kind(document=0, metric="m", pipeline="p", value=math.nan)
    journal.add_judged("a", [(0, "scored", "")], [], [verdict]).result()
    [(*_, found)] = journal.read_verdicts("a")
    assert isinstance(found, float) and math.isnan(found)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(np.float64(0.5), 0.5), (np.float32(0.5), 0.5), (np.int64(3), 3), (np.bool_(True), True)],
)
def test_a_numpy_number_is_stored_as_a_number(journal: Journal, value: Any, expected: Any) -> None:
    verdict = Score(document=0, metric="m", pipeline="p", value=value)
    journal.add_judged("a", [(0, "scored", "")], [], [verdict]).result()
    [(*_, found)] = journal.read_verdicts("a")
    assert (found, type(found)) == (expected, type(expected))


def test_documents_are_read_by_number(journal: Journal) -> None:
    for task in ("a", "b"):  # two tasks, of which the second begins after the first
        verdicts = [
            Score(document=number, metric="m", pipeline="p", value=float(number)) for number in range(5)
        ]
        outcomes = [(number, "scored" if number else "failed", "") for number in range(5)]
        journal.add_judged(task, outcomes, [], verdicts).result()
    assert journal.count_documents("a") == journal.count_documents("b") == 5
    assert journal.count_documents("c") == 0
    assert journal.read_document_numbers("b", limit=2) == [0, 1]
    assert journal.find_document_numbers("a", [4, 1, 5, 2**70]) == [1, 4]
    assert journal.read_endings("b", [3, 0, 9]) == {0: "failed", 3: "scored"}
    assert list(journal.read_verdicts("b", [3, 9])) == [("p", "m", 3, "score", 3.0)]


def test_a_document_without_a_score_says_why(journal: Journal) -> None:
    verdict = Unscored(document=0, metric="m", pipeline="p", why="no number in it \ud800")
    journal.add_judged("a", [(0, "unscored", "no number")], [], [verdict]).result()
    assert list(journal.read_verdicts("a")) == [("p", "m", 0, "unscored", None)]
    [(why,)] = journal.query("SELECT why FROM verdicts")
    assert why.startswith("no number in it")


def test_verdicts_come_in_document_order_and_only_those_of_the_task(journal: Journal) -> None:
    verdicts = [
        Score(document=n, metric="m", pipeline=p, value=float(n)) for n in (10, 9, 2) for p in ("q", "p")
    ]
    journal.add_judged("a", [(n, "scored", "") for n in (10, 9, 2)], [], verdicts).result()
    journal.add_judged("b", [(10, "scored", "")], [], verdicts[:1]).result()
    assert [(row[0], row[2]) for row in journal.read_verdicts("a")] == [
        (pipeline, document) for document in (2, 9, 10) for pipeline in ("q", "p")
    ]


def test_judging_again_replaces(journal: Journal) -> None:
    for value in (0.0, 1.0):
        answer = Answer(document=0, pipeline="p", values=(value,))
        verdict = Score(document=0, metric="m", pipeline="p", value=value)
        journal.add_judged("a", [(0, "scored", "")], [answer], [verdict]).result()
    assert [row[4] for row in journal.read_verdicts("a")] == [1.0]
    assert list(journal.query("SELECT content FROM answers")) == [('{"p": [1.0]}',)]


def test_finished_documents_are_those_that_need_nothing_more(journal: Journal) -> None:
    journal.add_judged(
        "a", [(0, "scored", ""), (1, "failed", "timeout"), (2, "unscored", "?")], [], []
    ).result()
    journal.add_judged("b", [(7, "scored", "")], [], []).result()
    assert journal.finished_documents("a") == {0, 2}
    assert journal.finished_documents("b") == {7}
    assert journal.finished_documents("c") == set()
    assert journal.count_outcomes("a") == {"scored": 1, "failed": 1, "unscored": 1}
    journal.add_judged("a", [(1, "scored", "")], [], []).result()
    assert journal.finished_documents("a") == {0, 1, 2}


# --- estimates -------------------------------------------------------------------------------------

ESTIMATES = [
    Estimate(
        task="a",
        metric="acc",
        pipeline="none",
        value=0.1 + 0.2,
        stderr=1 / 3,
        method="mean",
        scored=9,
        unscored=1,
    ),
    Estimate(
        task="a", metric="f1", pipeline="none", value=-math.inf, stderr=None, failed=2, higher_is_better=False
    ),
    Estimate(task="a", metric="by_domain", pipeline="none", value={"logos": 0.5, "art": {"n": 1}}),
    Estimate(task="a", metric="table", pipeline="none", value={1: (0.5, "x")}),
    Estimate(task="a", metric="text", pipeline="none", value="N/A"),
]


@pytest.mark.parametrize("estimate", ESTIMATES, ids=lambda estimate: estimate.metric)
def test_an_estimate_is_given_back_as_it_was(journal: Journal, estimate: Estimate) -> None:
    journal.add_estimates([estimate]).result()
    assert journal.read_estimates() == [estimate]


@pytest.mark.parametrize("value", [np.float32(0.5), np.float64(0.5), np.array(0.5)], ids=repr)
def test_an_estimate_of_numpy_is_a_number(journal: Journal, value: Any) -> None:
    journal.add_estimates([Estimate(task="a", metric="m", pipeline="p", value=value)]).result()
    [found] = journal.read_estimates()
    assert (found.value, type(found.value)) == (0.5, float)


def test_an_estimate_of_an_unsupported_type_is_stored_as_text(journal: Journal) -> None:
    journal.add_estimates([Estimate(task="a", metric="m", pipeline="p", value=Path("x"))]).result()
    assert journal.read_estimates()[0].value == "x"


def test_drawing_the_numbers_again_replaces_them(journal: Journal) -> None:
    for value in (0.0, 1.0):
        journal.add_estimates([Estimate(task="a", metric="m", pipeline="p", value=value)]).result()
    assert [estimate.value for estimate in journal.read_estimates()] == [1.0]


# --- opening ---------------------------------------------------------------------------------------


def test_what_one_process_wrote_the_next_one_finds(tmp_path: Path) -> None:
    journal = Journal.open_for_writing(tmp_path)
    journal.add_responses([("f", RESPONSES[0])], source="model")
    journal.add_judged("a", [(0, "scored", "")], [], [])
    journal.close()
    for reopened in (Journal.open_readonly(tmp_path), Journal.open_for_writing(tmp_path)):
        assert list(reopened.find(["f"])) == ["f"]
        assert reopened.finished_documents("a") == {0}
        reopened.close()


def test_a_run_can_be_looked_at_while_it_is_written(journal: Journal) -> None:
    reader = Journal.open_readonly(journal.path.parent)
    assert reader.read_facts() == {}
    journal.set_facts({"a": 1}).result()
    assert reader.read_facts() == {"a": 1}
    with pytest.raises(CorruptStore, match="reading only"):
        reader.set_facts({"b": 1})
    reader.close()


def test_a_run_has_one_writer(journal: Journal) -> None:
    with pytest.raises(RunLocked):
        Journal.open_for_writing(journal.path.parent)


def test_a_closed_run_can_be_written_again(tmp_path: Path) -> None:
    for number in range(3):
        journal = Journal.open_for_writing(tmp_path)
        journal.set_facts({str(number): number}).result()
        journal.close()
    reader = Journal.open_readonly(tmp_path)
    assert reader.read_facts() == {"0": 0, "1": 1, "2": 2}
    reader.close()


def test_a_journal_that_cannot_be_opened_lets_go_of_the_lock(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / JOURNAL_FILE)) as other:
        other.execute("CREATE TABLE of_another_program (id)")
    with pytest.raises(CorruptStore):
        Journal.open_for_writing(tmp_path)
    (tmp_path / JOURNAL_FILE).unlink()
    Journal.open_for_writing(tmp_path).close()


def test_reading_where_there_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptStore, match="no journal") as caught:
        Journal.open_readonly(tmp_path)
    assert "assay run" in caught.value.hint


def test_only_tables_can_be_counted(journal: Journal) -> None:
    with pytest.raises(ValueError, match="facts; DROP"):
        journal.count_rows("facts; DROP TABLE facts")


# --- queries for results and pages -----------------------------------------------------------------


@pytest.fixture
def finished(journal: Journal) -> Journal:
    """A journal with three documents of one task: scored, failed, failed for the same reason."""
    request = Generate(task="a", document=0, prompt=PROMPT, settings=Settings())
    journal.add_documents(
        [
            (
                Document(task="a", index=index, fields={"topic": {"name": index}}),
                None,
                [request],
                [f"f{index}"],
            )
            for index in range(3)
        ]
    )
    usage = Usage(1, 1, cost_usd=0.5)
    journal.add_responses([("f0", Response(request_id="f0", value="4", usage=usage))], source="model")
    journal.add_responses([("f1", Response(request_id="f1", value="5"))], source="cache")
    score = Score(document=0, metric="acc", pipeline="none", value=1.0)
    outcomes = [(0, "scored", ""), (1, "failed", "timeout"), (2, "failed", "timeout")]
    journal.add_judged("a", outcomes, [], [score]).result()
    return journal


def test_outcomes_are_read_in_order_and_filtered(finished: Journal) -> None:
    assert list(finished.read_outcomes("a")) == [
        (0, "scored", ""),
        (1, "failed", "timeout"),
        (2, "failed", "timeout"),
    ]
    assert [document for document, *_ in finished.read_outcomes("a", only="failed")] == [1, 2]
    assert [document for document, *_ in finished.read_outcomes("a", exclude="failed")] == [0]
    assert not list(finished.read_outcomes("another task"))


def test_reasons_are_grouped_with_their_first_document(finished: Journal) -> None:
    assert finished.read_outcome_reasons("a", limit=5) == [(1, 2, "failed", "timeout")]
    assert finished.count_all_outcomes() == {"scored": 1, "failed": 2}


def test_responses_and_costs_are_counted_by_source(finished: Journal) -> None:
    assert finished.count_cached_responses() == (1, 2)
    assert finished.count_response_rows() == 2
    assert finished.sum_costs() == (0.5, 1)
    ((_, *counts),) = finished.count_responses_over_time(per_second=0)
    assert counts == [1, 1, 0]


def test_a_page_of_documents_says_whether_there_are_more(finished: Journal) -> None:
    assert finished.read_document_rows(limit=2, offset=0) == ([0, 1], True)
    assert finished.read_document_rows(limit=2, offset=2) == ([2], False)
    assert finished.read_task_offsets() == {0: "a"}


def test_fields_are_read_with_verdicts(finished: Journal) -> None:
    assert [json.loads(fields) for fields in finished.read_fields("a", limit=1)] == [{"topic": {"name": 0}}]
    rows = list(finished.read_verdicts_with_field("a", "topic.name"))
    assert [(document, outcome, value) for document, outcome, _, value in rows] == [
        (0, "scored", 0),
        (1, "failed", 1),
        (2, "failed", 2),
    ]


def test_a_run_is_finished_when_its_end_is_stored(finished: Journal) -> None:
    assert not finished.is_finished()
    finished.set_facts({"ended": 1.0}).result()
    assert finished.is_finished()
