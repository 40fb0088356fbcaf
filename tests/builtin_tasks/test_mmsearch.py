"""MMSearch: a query, a page, an answer; and an index that finds the same everywhere."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.builtin_tasks.fake_hub import FOLDER, columns, helper, picture, pictures, put_dataset, run_task

from assay.core.errors import AssayError
from assay.core.records.messages import Image
from assay.core.records.requests import Request
from assay.tasks.data.rows import Rows
from assay.tasks.files.task_loader import load_task
from assay.tasks.task import RenderingOptions, Task

mmsearch = helper("mmsearch")
scoring = helper("mmsearch", "scoring")
search = sys.modules["assay.builtin_tasks.mmsearch.search"]
prompts = sys.modules["assay.builtin_tasks.mmsearch.prompts"]

PAGES = [
    {"title": "iPhone 16", "url": "https://a", "text": "The iPhone 16 was released on 2024-09-20 in many countries."},
    {"title": "Weather", "url": "https://b", "text": "Rain is expected. No release of anything."},
    {"title": "Eiffel Tower", "url": "https://c", "text": "A tower in Paris.", "screenshot": "tower.png"},
]  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {
        "sample_id": "1",
        "query": "When was iPhone 16 released?",
        "gt_requery": "iPhone 16 release date",
        "gt_answer": "2024-09-20",
        "alternative_gt_answers": ["September 20, 2024"],
        "area": "news",
        "subfield": "technology",
        "timestamp": "2024",
    },
    {
        "sample_id": "2",
        "query": "Where is this?",
        "gt_requery": "Eiffel Tower city",
        "gt_answer": "Paris",
        "alternative_gt_answers": [],
        "area": "knowledge",
        "subfield": "architecture",
        "timestamp": "",
    },
]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three pages, one with a screenshot of 1,100 lines."""
    folder = tmp_path / "index"
    put_index(folder)
    monkeypatch.setenv("MMSEARCH_INDEX", str(folder))
    return folder


def put_index(folder: Path) -> None:
    folder.mkdir()
    picture(7, (4, 1100)).save(folder / "tower.png")
    (folder / "pages.jsonl").write_text("".join(json.dumps(page) + "\n" for page in PAGES))


def put_questions(root: Path) -> None:
    texts = [name for name in ROWS[0] if name != "alternative_gt_answers"]
    features = columns(
        **dict.fromkeys(texts, "string"),
        alternative_gt_answers="string[]",
        query_image="image",
        image_search_result="image",
    )
    pictures = [(None, None), (picture(1), picture(2))]
    rows = [
        {**row, "query_image": asked, "image_search_result": found}
        for row, (asked, found) in zip(ROWS, pictures, strict=True)
    ]
    put_dataset(root, "CaraJ/MMSearch", rows, features=features, split="end2end", config="end2end")


def able(request: Request) -> str:
    """A model that can do all three stages."""
    text = request.prompt.text
    if "Query to the search engine (do" in text:
        return "iPhone 16 release date" if "iPhone 16 released" in text else "Eiffel Tower Paris"
    if "<Website Index>" in text:
        return "<Website 1>"
    return "on 20 September 2024" if "iPhone" in text else "Paris."


def test_a_run_takes_three_rounds_and_scores_query_and_answer(tmp_path: Path, index: Path) -> None:
    put_questions(tmp_path)
    results, asked = run_task("mmsearch_end2end", tmp_path, able)
    assert len(asked) == 6
    # "on 20 september 2024" against "september 20 2024": 3 of 4 words, 3 of 3; "paris" is all of it
    phone = 2 * (3 / 4) * 1 / (3 / 4 + 1)
    assert results["end2end_f1_score,none"] == pytest.approx((phone + 1) / 2)
    # the first query is the wanted one; of the second, 2 of 3 words are right, in order, and 2 of 3 are wanted
    assert results["requery_score,none"] == pytest.approx((1 + 2 / 3) / 2, abs=1e-7)
    assert results["end2end_area_f1,none"] == {"knowledge": 1.0, "news": pytest.approx(phone)}
    assert results["end2end_subfield_f1,none"] == {"architecture": 1.0, "technology": pytest.approx(phone)}


def test_each_round_shows_what_it_should(tmp_path: Path, index: Path) -> None:
    put_questions(tmp_path)
    _, asked = run_task("mmsearch_end2end", tmp_path, able)
    first, second, third = sorted(
        (request for request in asked if request.document == 1), key=lambda request: request.index
    )
    assert [len(request.prompt.media) for request in (first, second, third)] == [2, 3, 5]
    assert "Website 1 Title: Eiffel Tower;\nWebsite 1 snippet: A tower in Paris." in second.prompt.text
    assert "Website Content: A tower in Paris.;" in third.prompt.text
    heights = [shown.size[1] for shown in pictures(third)]
    assert heights == [512, 512, 76, 6, 6]  # the slices, then the search result and the picture
    (message,) = first.prompt.messages
    place = next(at for at, part in enumerate(message.parts) if isinstance(part, Image))
    assert message.parts[place - 1].text.endswith("Question: ")  # type: ignore[union-attr]
    assert message.parts[place + 1].text.startswith("Where is this? \nThe image search result is: ")  # type: ignore[union-attr]
    shown = [picture.getpixel((0, 0))[0] for picture in pictures(first)]
    assert shown == [1, 2]


def test_a_query_that_finds_nothing_ends_it(tmp_path: Path, index: Path) -> None:
    put_questions(tmp_path)
    results, asked = run_task("mmsearch_end2end", tmp_path, lambda request: "zzz", limit=1)
    assert (len(asked), results["end2end_f1_score,none"], results["requery_score,none"]) == (1, 0.0, 0.0)


def test_models_without_chat_get_the_texts_of_the_benchmark(index: Path) -> None:
    spec = load_task(FOLDER / "mmsearch" / "mmsearch_end2end.yaml")
    rows = Rows([{**ROWS[0], "query_image": None, "image_search_result": None}])
    task = Task(spec, RenderingOptions(chat_messages=False), {"end2end": rows})
    ((_, (request,)),) = task.render()
    assert request.prompt.text == prompts.WITHOUT_PICTURE["requery"].format(question=ROWS[0]["query"])


def test_the_texts_are_those_of_the_benchmark() -> None:
    texts = [*prompts.WITHOUT_PICTURE.values(), *prompts.WITH_PICTURE.values()]
    digest = hashlib.sha256("".join(texts).encode()).hexdigest()
    assert digest == "6993ae823ae6b8cfab75a6fc4513331f1724b4aff0f915224981010c7c5f73cf"


# --- the index -------------------------------------------------------------------------------------------


def test_without_an_index_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MMSEARCH_INDEX", raising=False)
    put_questions(tmp_path)
    asked: list[Request] = []

    def answer(request: Request) -> str:
        asked.append(request)
        return "x"

    with pytest.raises(AssayError, match="MMSEARCH_INDEX"):
        run_task("mmsearch_end2end", tmp_path, answer)
    assert asked == []


@pytest.mark.parametrize(
    ("query", "titles"),
    [
        ("iphone RELEASE", ["iPhone 16", "Weather"]),
        ("release", ["Weather"]),
        ("tower", ["Eiffel Tower"]),
        ("nothing fits", []),
        ("", []),
    ],
)
def test_pages_are_found_by_their_words(query: str, titles: list[str], index: Path) -> None:
    engine = search.engine_of({"search_index": "$MMSEARCH_INDEX"})
    assert [page.title for page in engine.search(query, 8)] == titles


def test_no_more_pages_than_asked_for_and_equals_in_order() -> None:
    pages = [search.Page(title=f"page {n}", url="", snippet="", text="same words") for n in range(5)]
    assert [page.title for page in search.LocalIndex(pages).search("words", 3)] == [
        "page 0",
        "page 1",
        "page 2",
    ]


@pytest.mark.parametrize(
    ("line", "complaint"), [('{"title": "a"}', "pages.jsonl:1: a page needs `text`"), ("{", "Expecting")]
)
def test_a_bad_page_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    (tmp_path / "pages.jsonl").write_text(line)
    with pytest.raises(ValueError, match=complaint):
        search.read_pages(tmp_path)


def test_an_index_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no index of pages"):
        search.engine_of({"search_index": str(tmp_path / "none")})


def test_another_engine_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("my_engines")
    found = search.Page(title="t", url="u", snippet="s", text="x")

    class Engine:
        def __init__(self, settings: dict[str, Any]) -> None:
            self.count = settings["pages"]

        def search(self, query: str, count: int) -> list[Any]:
            return [found] * min(count, self.count)

    module.Engine = Engine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_engines", module)
    engine = search.engine_of({"search_engine": "my_engines:Engine", "pages": 2})
    assert engine.search("anything", 8) == [found, found]
    with pytest.raises(ValueError, match=r"package\.module:name"):
        search.engine_of({"search_engine": "google"})


def test_the_best_passages_of_a_long_page_come_first() -> None:
    text = " ".join(["rain"] * 200 + ["tower"] + ["sun"] * 199 + ["wind"] * 10)
    first, second = search.best_passages("tower", text, 2)
    assert first.startswith("tower sun")
    assert second.startswith("rain")


@pytest.mark.parametrize(
    ("answer", "place"),
    [
        ("<Website 3>", 2),
        ("I choose <Website 2>, <Website 1>", 1),
        ("3", 0),
        ("<Website 0>", 0),
        ("<Website 9>", 0),
    ],
)
def test_a_page_is_chosen_by_its_number(answer: str, place: int) -> None:
    assert mmsearch.chosen_page(answer, 8) == place


# --- scores ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "target", "score"),
    [
        ("The Eiffel Tower!", "eiffel tower", 1.0),
        ("Paris, France", "Paris", 2 / 3),
        ("Paris Paris", "Paris", 2 / 3),
        ("London", "Paris", 0.0),
        ("", "Paris", 0.0),
        ("the", "a", 1.0),
    ],
)
def test_answers_are_compared_word_by_word(answer: str, target: str, score: float) -> None:
    assert scoring.answer_f1(answer, target) == pytest.approx(score)


def test_a_short_query_pays_for_what_it_leaves_out() -> None:
    import math

    assert scoring.bleu_1(["iphone"], ["iphone", "date"]) == pytest.approx(math.exp(-1))
    assert scoring.bleu_1(["iphone", "iphone"], ["iphone", "date"]) == 0.5
    assert scoring.rouge_l("date iphone", "iphone date") == pytest.approx(0.5)
    assert scoring.rouge_l("", "iphone date") == 0.0
