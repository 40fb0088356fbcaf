"""IFEval: every kind of instruction told followed from not followed, strictly and loosely."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.builtin_tasks.fake_hub import helper, put_configs

import assay
from assay.testing import ScriptedModel

pytest.importorskip("langdetect", reason="languages are told by langdetect, the extra `ifeval`")

ifeval = helper("ifeval")
CHECKS = ifeval.CHECKS
ENGLISH = "the train is late today because of the snow in the mountains"

FOLLOWED: list[tuple[str, dict[str, Any], str, str]] = [
    ("keywords:existence", {"keywords": ["sea", "sky"]}, "The Sea and the sky.", "The sea."),
    ("keywords:frequency", {"keyword": "sea", "frequency": 2, "relation": "at least"}, "Sea, sea.", "Sea."),
    ("keywords:frequency", {"keyword": "sea", "frequency": 2, "relation": "less than"}, "Sea.", "Sea, sea."),
    ("keywords:forbidden_words", {"forbidden_words": ["sea"]}, "Seals.", "The sea."),
    (
        "keywords:letter_frequency",
        {"letter": "!", "let_frequency": 2, "let_relation": "at least"},
        "Go! Go!",
        "Go!",
    ),
    (
        "language:response_language",
        {"language": "de"},
        "Der Zug kommt heute wegen des Schnees zu spät in Bern an.",
        ENGLISH,
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "at least"},
        "It rains. Mr. Smith left.",
        "It rains, Mr. Smith!",
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "One\n***\nTwo\n***", "One\n\nTwo"),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "one two three", "one two"),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "so"},
        "Well.\n\n'So, yes",
        "So.\n\nWell",
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] and [b]", "[a] and b"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye\nP. P. S. Hi", "Bye\nP.S. Hi"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n- b", "* a\n* b\n* c"),
    ("detectable_format:constrained_response", {}, "My answer is no.", "No."),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and **b**", "*a* and b"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Day", "num_sections": 2},
        "Day 1 x\nDay 2 y",
        "Day 1 x\nDay two y",
    ),
    ("detectable_format:json_format", {}, '```JSON\n{"a": 1}\n```', 'Sure: {"a": 1}'),
    ("detectable_format:title", {}, "<<Title>>\nText", "<< >>\nText"),
    ("combination:two_responses", {}, "One ****** Two", "One ****** One"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say it."}, "say it. It.", "It. Say it."),
    ("startend:end_checker", {"end_phrase": "The end."}, 'So it was. The END."', "The end. Really."),
    ("startend:quotation", {}, ' "All." ', '"Not" all.'),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "less than"},
        "NASA flies",
        "NASA and ESA fly",
    ),
    (
        "change_case:english_capital",
        {},
        "WHAT A WONDERFUL THING IT IS TO HAVE SOMETHING WORTH THINKING ABOUT",
        ENGLISH,
    ),
    ("change_case:english_lowercase", {}, ENGLISH, ENGLISH.title()),
    ("punctuation:no_comma", {}, "no comma here", "a comma, here"),
]


@pytest.mark.parametrize(("kind", "arguments", "good", "bad"), FOLLOWED)
def test_a_response_that_follows_is_told_from_one_that_does_not(
    kind: str, arguments: dict[str, Any], good: str, bad: str
) -> None:
    every = dict.fromkeys(("num_words", "keywords", "language"))  # the dataset has all columns in every row
    document = {"instruction_id_list": [kind], "kwargs": [every | arguments]}
    for response, followed in ((good, True), (bad, False), (" \n", False)):
        found = ifeval.process_results(document, [response])
        assert found["inst_level_strict_acc"] == [followed], response
        assert found["prompt_level_strict_acc"] is followed


def test_there_is_a_case_for_every_kind() -> None:
    assert {kind for kind, *_ in FOLLOWED} == set(CHECKS)
    assert len(CHECKS) == 25


def test_a_frame_around_the_answer_is_forgiven_loosely_only() -> None:
    document = {"instruction_id_list": ["startend:quotation", "punctuation:no_comma"], "kwargs": [{}, {}]}
    found = ifeval.process_results(document, ['Sure, here it is:\n*"Good morning"*'])
    assert found == {
        "prompt_level_strict_acc": False,
        "inst_level_strict_acc": [False, False],
        "prompt_level_loose_acc": True,
        "inst_level_loose_acc": [True, True],
    }


def test_text_without_letters_is_in_any_language() -> None:
    assert CHECKS["language:response_language"]("1, 2, 3", language="de")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("No mark at all", 1),
        ("Mr. J. Doe paid 3.50 dollars.", 1),
        ("One. two? Three!", 3),
        ('"Really?" she said. (It was.) Then...', 4),
        ("Wait... what? Wait... What?", 3),
        ("In the U.S. it rains.\nA new line", 2),
    ],
)
def test_sentences_are_counted_by_rules(text: str, count: int) -> None:
    assert helper("ifeval", "reading").count_sentences(text) == count


def test_unknown_instructions_and_relations_are_not_guessed() -> None:
    with pytest.raises(ValueError, match="no instruction `rhyme`"):
        ifeval.process_results({"instruction_id_list": ["rhyme"], "kwargs": [{}]}, ["moon"])
    with pytest.raises(ValueError, match="not `about`"):
        CHECKS["length_constraints:number_words"]("one", num_words=1, relation="about")


@pytest.mark.usefixtures("workspace")
def test_instructions_are_counted_one_by_one_over_all_prompts(tmp_path: Path) -> None:
    empty = {"num_bullets": None, "end_phrase": None}
    rows = [
        {
            "key": 1,
            "prompt": "Three things, no commas.",
            "instruction_id_list": ["punctuation:no_comma", "detectable_format:number_bullet_lists"],
            "kwargs": [empty, empty | {"num_bullets": 3}],
        },
        {
            "key": 2,
            "prompt": "End it.",
            "instruction_id_list": ["startend:end_checker"],
            "kwargs": [empty | {"end_phrase": "c"}],
        },
    ]
    put_configs(tmp_path / "hub", "google/IFEval", {"default": {"train": rows}})
    model = ScriptedModel(lambda request: "- a\n- b\n- c\n- , c", window=1)
    results = assay.run(model=model, tasks=["ifeval"], data_root=str(tmp_path / "hub")).results["ifeval"]
    assert [request.prompt.text for request in model.asked] == ["Three things, no commas.", "End it."]
    assert results["prompt_level_strict_acc,none"] == 0.5
    assert results["inst_level_strict_acc,none"] == pytest.approx(1 / 3)
    assert results["prompt_level_loose_acc,none"] == 1.0
