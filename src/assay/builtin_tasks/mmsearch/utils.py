"""MMSearch from question to answer: requery, rerank, summarise. Each round is made from the answers before it.

`doc_to_text` speaks the protocol of multi-round tasks; `doc_to_messages` puts the pictures where the texts name them.
"""

from __future__ import annotations

import re
from typing import Any

from PIL import Image

from assay.builtin_tasks.mmsearch.prompts import PICTURE, WITH_PICTURE, WITHOUT_PICTURE
from assay.builtin_tasks.mmsearch.search import Page, best_passages, engine_of

PAGES = 8
"""How many pages the model chooses from."""

CHOSEN = 1
"""How many it reads."""

PASSAGES = 8
SLICE_HEIGHT = 512
MOST_SLICES = 10

Settings = dict[str, Any] | None
Round = tuple[list[Any] | None, str | None, bool, list[str], Any]


def mmsearch_doc_to_visual(doc: dict[str, Any]) -> list[Any]:
    """The picture of the question and what an image search found for it; nothing for a question without picture."""
    if doc["query_image"] is None:
        return []
    return [doc["query_image"].convert("RGB"), doc["image_search_result"].convert("RGB")]


def mmsearch_doc_to_text(
    doc: dict[str, Any],
    lmms_eval_specific_kwargs: Settings = None,
    previous_output: list[str] | None = None,
    round_idx: int | None = None,
    previous_round_info: Any = None,
) -> str | Round:
    """The first question, or what follows from the answers so far."""
    settings = lmms_eval_specific_kwargs or {}
    if round_idx is None:
        engine_of(settings)  # without one, better to know before anything is asked
        return _asked(doc, "requery")
    answers = list(previous_output or ())
    if round_idx == 1:
        return _rerank(doc, settings, answers)
    if round_idx == 2:
        return _summarise(doc, answers, previous_round_info["pages"])
    return None, None, True, answers, None


def mmsearch_doc_to_messages(
    doc: dict[str, Any],
    lmms_eval_specific_kwargs: Settings = None,
    previous_output: list[str] | None = None,
    round_idx: int | None = None,
    previous_round_info: Any = None,
) -> Any:
    """The same as chat messages."""
    made = mmsearch_doc_to_text(
        doc, lmms_eval_specific_kwargs, previous_output, round_idx, previous_round_info
    )
    if isinstance(made, str):
        return _messages(mmsearch_doc_to_visual(doc), made)
    pictures, text, terminal, answers, info = made
    return _messages(pictures or [], text or ""), terminal, answers, info


def _messages(pictures: list[Any], text: str) -> list[dict[str, Any]]:
    """One user message with each picture in the place of its mark; before the text when the numbers do not agree."""
    pieces = text.split(PICTURE)
    if len(pieces) != len(pictures) + 1:
        pieces = [""] * len(pictures) + [text]
    content: list[dict[str, Any]] = []
    for picture, piece in zip([None, *pictures], pieces, strict=True):
        if picture is not None:
            content.append({"type": "image", "url": picture})
        if piece:
            content.append({"type": "text", "text": piece})
    return [{"role": "user", "content": content}]


# --- the rounds ----------------------------------------------------------------------------------------------------


def _rerank(doc: dict[str, Any], settings: dict[str, Any], answers: list[str]) -> Round:
    """The pages that the query found, to choose from. A query that finds nothing ends the dialogue."""
    pages = list(engine_of(settings).search(answers[-1], PAGES))
    if not pages:
        return None, None, True, [*answers, "", ""], None
    parts, shown = [], []
    for number, page in enumerate(pages, start=1):
        lines = [f"Website {number} Title: {page.title}", f"Website {number} snippet: {page.snippet}"]
        if page.screenshot:
            lines.append(f"Website {number} Screenshot: {PICTURE}")
            shown.append(_open(page.screenshot))
        parts.append(";\n".join(lines))
    text = _asked(
        doc,
        "rerank",
        brief_result_num=len(pages),
        rerank_num=CHOSEN,
        website_information="\n\n".join(parts),
        incontext_example=",".join(f"<Website {number}>" for number in range(CHOSEN)),
    )
    return [*mmsearch_doc_to_visual(doc), *shown], text, False, answers, {"pages": pages}


def _summarise(doc: dict[str, Any], answers: list[str], pages: list[Page]) -> Round:
    """What the chosen page says about the query, to answer from."""
    page = pages[chosen_page(answers[1], len(pages))]
    content = "\n".join(best_passages(answers[0], page.text, PASSAGES))
    slices = _slices(page.full_screenshot or page.screenshot)
    information = (
        f"Website Title: {page.title};\n Website Snippet: {page.snippet};\nWebsite Content: {content};\n"
    )
    if slices:
        information += f"Website Screenshot: {PICTURE * len(slices)};\n"
    text = _asked(doc, "summarise", rerank_num=CHOSEN, website_information=information)
    own = mmsearch_doc_to_visual(doc)[::-1]  # here the text names the search result first
    return [*slices, *own], text, False, answers, None


def chosen_page(answer: str, count: int) -> int:
    """The place of the page a response chooses; the first one when it chooses none that is there.

    >>> chosen_page("<Website 3>", 8), chosen_page("the second", 8), chosen_page("<Website 9>", 8)
    (2, 0, 0)
    """
    numbers = [int(number) for number in re.findall(r"<Website (\d+)>", answer)]
    return numbers[0] - 1 if numbers and 1 <= numbers[0] <= count else 0


def _asked(doc: dict[str, Any], stage: str, **parts: Any) -> str:
    if doc["query_image"] is None:
        return WITHOUT_PICTURE[stage].format(question=doc["query"], **parts)
    return WITH_PICTURE[stage].format(
        question=f"{PICTURE}{doc['query']}", image_search_result=PICTURE, **parts
    )


def _open(path: str) -> Any:
    with Image.open(path) as picture:
        return picture.convert("RGB")


def _slices(path: str) -> list[Any]:
    """A long screenshot from the top in pictures that a model can read."""
    if not path:
        return []
    whole = _open(path)
    tops = range(0, min(whole.height, MOST_SLICES * SLICE_HEIGHT), SLICE_HEIGHT)
    return [whole.crop((0, top, whole.width, min(top + SLICE_HEIGHT, whole.height))) for top in tops]
