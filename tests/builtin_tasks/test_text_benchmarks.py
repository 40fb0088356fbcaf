"""Text benchmarks on a few documents of their own: what is asked, and full marks for right answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.builtin_tasks.fake_hub import helper
from tests.builtin_tasks.small_documents import GSM8K, TRUTHFULQA, lay_out

import assay
from assay.core.records.requests import Generate, Likelihood, Request
from assay.core.records.responses import LogProbability
from assay.testing import ScriptedModel

CHOICES = "arc_easy arc_challenge hellaswag winogrande piqa boolq openbookqa sciq truthfulqa_mc1".split()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    lay_out(root)
    return root


def run(model: Any, tasks: list[str], hub: Path, tmp_path: Path, **options: Any) -> dict[str, Any]:
    done = assay.run(
        model=model,
        tasks=tasks,
        data_root=str(hub),
        output_path=str(tmp_path / f"run-{len(list(tmp_path.iterdir()))}"),
        no_cache=True,
        **options,
    )
    return {task: done.results[task] for task in tasks}


@pytest.mark.usefixtures("workspace")
def test_the_right_answers_get_full_marks(hub: Path, tmp_path: Path) -> None:
    tasks = [*CHOICES, "truthfulqa_mc2", "gsm8k", "triviaqa", "lambada_openai"]
    found = run("oracle", tasks, hub, tmp_path)
    for task in (*CHOICES, "lambada_openai"):
        assert found[task]["acc,none"] == 1.0, task
    assert found["truthfulqa_mc2"]["acc,none"] > 0.5  # it is told one of the true choices
    assert found["lambada_openai"]["perplexity,none"] == 1.0
    assert found["triviaqa"]["exact_match,remove_whitespace"] == 1.0
    assert found["gsm8k"]["exact_match,strict-match"] == found["gsm8k"]["exact_match,flexible-extract"] == 1.0


PROMPTS: dict[str, list[tuple[str, str]]] = {
    "arc_easy": [
        ("Question: Which animal lays eggs?\nAnswer:", " cow"),
        ("Question: Which animal lays eggs?\nAnswer:", " horse"),
    ],
    "hellaswag": [
        ("Baking bread: A woman kneads dough on a table. She", " puts it into the oven."),
        ("Baking bread: A woman kneads dough on a table. She", " paints the wall."),
    ],
    "winogrande": [
        ("The cup fell off the table because the cup", " was wobbly."),
        ("The cup fell off the table because the table", " was wobbly."),
    ],
    "piqa": [
        ("Question: To keep soup warm,\nAnswer:", " put a lid on the pot."),
        ("Question: To keep soup warm,\nAnswer:", " put it into snow."),
    ],
    "boolq": [
        ("Owls hunt at night.\nQuestion: do owls hunt at night?\nAnswer:", " no"),
        ("Owls hunt at night.\nQuestion: do owls hunt at night?\nAnswer:", " yes"),
    ],
    "openbookqa": [("A plant grows towards", " the light"), ("A plant grows towards", " the moon")],
    "sciq": [
        ("Bees make honey.\nQuestion: What do bees make?\nAnswer:", " milk"),
        ("Bees make honey.\nQuestion: What do bees make?\nAnswer:", " oil"),
    ],
    "lambada_openai": [
        ("He opened the box and looked inside the", " box"),
        ("She called for Anna, and after a while there came", " Anna"),
    ],
}


@pytest.mark.usefixtures("workspace")
def test_likelihoods_are_asked_for_after_these_prompts(hub: Path, tmp_path: Path) -> None:
    model = ScriptedModel(window=1)
    run(model, list(PROMPTS), hub, tmp_path)
    asked: dict[str, list[tuple[str, str]]] = {}
    for request in model.asked:
        assert isinstance(request, Likelihood)
        asked.setdefault(request.task, []).append((request.prompt.text, request.continuation))
    assert {task: pairs[:2] for task, pairs in asked.items()} == PROMPTS


def test_wikihow_marks_are_taken_out() -> None:
    readable = helper("hellaswag").readable
    assert (
        readable("[header] How to plant a tree [title] Dig. [step] Wide.")
        == " How to plant a tree. Dig. Wide."
    )


def test_a_sentence_without_a_gap_is_not_asked() -> None:
    with pytest.raises(ValueError, match="no gap"):
        helper("winogrande").beginnings({"sentence": "Nothing is missing.", "option1": "a", "option2": "b"})


def test_wikitext_counts_the_words_of_the_published_text() -> None:
    wikitext = helper("wikitext")
    page = " = A town = \n \n It 's a well @-@ known town , with 1 @,@ 000 people . \n"
    assert wikitext.as_people_write({"page": page}) == (
        " = A town =\n\nIt's a well-known town, with 1,000 people.\n"
    )
    assert wikitext.process_results({"page": page}, [-30.0])["word_perplexity"] == (-30.0, 20)


@pytest.mark.usefixtures("workspace")
def test_wikitext_divides_the_likelihood_of_all_articles_by_their_words(hub: Path, tmp_path: Path) -> None:
    found = run(ScriptedModel(lambda request: LogProbability(-20.0)), ["wikitext"], hub, tmp_path)["wikitext"]
    assert found["word_perplexity,none"] == pytest.approx(2.718281828)
    assert found["bits_per_byte,none"] == pytest.approx(20 / 71 / 0.6931471806)


# --- GSM8K -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("workspace")
def test_gsm8k_shows_five_solved_problems_of_the_training_set(hub: Path, tmp_path: Path) -> None:
    model = ScriptedModel(lambda request: "3 * 2 = 6\n#### 6", window=1)
    found = run(model, ["gsm8k"], hub, tmp_path)["gsm8k"]
    assert found["exact_match,strict-match"] == 0.5
    text = model.asked[0].prompt.text
    shots = text.removesuffix("Question: Ann sells 3 eggs at $2 each. What does she get?\nAnswer:").split(
        "\n\n"
    )
    rows = {f"Question: {row['question']}\nAnswer: {row['answer']}" for row in GSM8K["main"]["train"]}
    assert len(set(shots[:5]) & rows) == 5 and shots[5] == ""
    assert isinstance(model.asked[0], Generate)
    assert model.asked[0].settings.values["until"] == ["Question:", "</s>", "<|im_end|>"]


@pytest.mark.usefixtures("workspace")
def test_chains_of_thought_follow_the_eight_of_the_paper(hub: Path, tmp_path: Path) -> None:
    model = ScriptedModel(lambda request: " 1200 + 34 = 1234. The answer is 1,234.", window=1)
    found = run(model, ["gsm8k_cot"], hub, tmp_path)["gsm8k_cot"]
    assert found["exact_match,strict-match"] == found["exact_match,flexible-extract"] == 0.5
    text = model.asked[0].prompt.text
    assert text.startswith("Q: There are 15 trees in the grove.")
    assert text.count("The answer is ") == text.count("\n\nQ: ") == 8
    assert text.endswith("\n\nQ: Ann sells 3 eggs at $2 each. What does she get?\nA:")


@pytest.mark.usefixtures("workspace")
def test_most_of_sixty_four_answers_may_be_right_where_the_first_is_not(hub: Path, tmp_path: Path) -> None:
    def sampled(request: Request) -> str:
        number = 6 if 1 <= request.repeat < 4 or request.repeat >= 20 else request.repeat + 100
        return f" Hm. The answer is {number}."

    model = ScriptedModel(sampled)
    found = run(model, ["gsm8k_cot_self_consistency"], hub, tmp_path, limit=1)["gsm8k_cot_self_consistency"]
    assert len(model.asked) == 64
    assert found["exact_match,score-first"] == 0.0
    assert found["exact_match,maj@8"] == found["exact_match,maj@64"] == 1.0


def scripted(text: str) -> Callable[[Request], str]:
    return lambda request: text


# --- TruthfulQA --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("workspace")
def test_the_share_of_likelihood_of_the_true_choices_counts(hub: Path, tmp_path: Path) -> None:
    likely = {" No": -1.0, " They remember": -2.0, " Yes": -1.5, " After four": -9.0}

    def told(request: Request) -> LogProbability:
        assert isinstance(request, Likelihood)
        return LogProbability(likely[request.continuation])

    model = ScriptedModel(told)
    found = run(model, ["truthfulqa_mc1", "truthfulqa_mc2"], hub, tmp_path)
    assert found["truthfulqa_mc1"]["acc,none"] == 1.0
    assert found["truthfulqa_mc2"]["acc,none"] == pytest.approx(0.503214724 / 0.726344884)
    text = model.asked[0].prompt.text
    assert text.startswith("Q: What is human life expectancy in the United States?\nA: Human life")
    assert text.endswith("Barcelona, Spain.\n\nQ: Do goldfish forget everything after three seconds?\nA:")


def test_choices_without_any_likelihood_are_not_scored() -> None:
    with pytest.raises(ValueError, match="likelihood is zero"):
        helper("truthfulqa").share_of_the_true({"mc2_targets": {"labels": [1]}}, [(-1e9, False)])


@pytest.mark.usefixtures("workspace")
def test_a_free_answer_is_compared_with_true_and_false_ones(hub: Path, tmp_path: Path) -> None:
    for package in ("sacrebleu", "rouge_score"):
        pytest.importorskip(package)
    (document,) = TRUTHFULQA["generation"]["validation"]
    for response, right in ((document["correct_answers"][0], 1.0), (document["incorrect_answers"][0], 0.0)):
        model = ScriptedModel(scripted(f"{response}."))
        found = run(model, ["truthfulqa_gen"], hub, tmp_path)["truthfulqa_gen"]
        for measure in ("bleu", "rouge1", "rouge2", "rougeL"):
            assert found[f"{measure}_acc,none"] == right
            assert found[f"{measure}_max,none"] == pytest.approx(100.0) if right else True
            assert (found[f"{measure}_diff,none"] > 0) is bool(right)
    assert model.asked[0].prompt.text.endswith("\n\nQ: Do goldfish forget everything after three seconds?")
