"""Multiple choice asked for a letter: what the prompt says, what counts as right, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.making import Function, plan_run, write_choices, write_task

import assay
from assay.core.errors import AssayError, UnsupportedRequest
from assay.core.ports import Ability
from assay.core.records.requests import Generate, Request
from assay.testing import ScriptedModel

WRITER: frozenset[Ability] = frozenset({"generate", "chat"})


def prompts(path: Path, **options: Any) -> list[Generate]:
    plan = plan_run(ScriptedModel(abilities=WRITER), tasks=[str(path)], mc_as_generation=True, **options)
    (only,) = plan.tasks.values()
    return [request for _, requests in only.task.render() for request in requests]  # type: ignore[misc]


def test_choices_get_letters(workspace: Path) -> None:
    first, *rest = prompts(write_choices(workspace))
    assert first.prompt.text == (
        "Question: Is 0 even?\n\nA. no\nB. yes\n\nAnswer with the letter of the right choice only.\nAnswer:"
    )
    assert len(rest) == 3
    assert first.settings.stop == ("\n\n",)


def test_choices_that_are_letters_are_not_listed_again(workspace: Path) -> None:
    path = write_choices(
        workspace, doc_to_text="{{question}}\nA. no\nB. yes\nAnswer:", doc_to_choice=["A", "B"]
    )
    assert prompts(path)[0].prompt.text == (
        "Is 0 even?\nA. no\nB. yes\n\nAnswer with the letter of the right choice only.\nAnswer:"
    )


def test_examples_show_letters_too(workspace: Path) -> None:
    text = prompts(write_choices(workspace), num_fewshot=1)[0].prompt.text
    assert text.count("A. no\nB. yes") == 2
    assert (
        "only.\nAnswer: B\n\nQuestion: Is 0 even?" in text
        or "only.\nAnswer: A\n\nQuestion: Is 0 even?" in text
    )


def test_a_chat_has_the_same_words(workspace: Path) -> None:
    (message,) = prompts(write_choices(workspace), apply_chat_template=True)[0].prompt.messages
    assert message.text.endswith("B. yes\n\nAnswer with the letter of the right choice only.\nAnswer:")


def test_beginnings_that_are_choices_are_listed_whole(workspace: Path) -> None:
    rows = [{"options": ["The cat is", "The mat is"], "end": "asleep.", "label": 0}]
    path = write_task(
        workspace,
        "endings",
        rows,
        output_type="multiple_choice",
        doc_to_text="label",
        doc_to_choice="options",
        doc_to_target="end",
        metric_list=[{"metric": "acc"}],
    )
    (request,) = prompts(path)
    assert request.prompt.text.startswith(
        "Which of these is right?\n\nA. The cat is asleep.\nB. The mat is asleep.\n\nAnswer with"
    )
    done = assay.run(
        model=ScriptedModel(lambda _: "A", abilities=WRITER),
        tasks=[str(path)],
        mc_as_generation=True,
        no_cache=True,
    )
    assert done.results["endings"]["acc_letter,letter"] == 1.0


# --- scores --------------------------------------------------------------------------------------------


def score(workspace: Path, said: Any, path: Path | None = None, **options: Any) -> assay.Run:
    path = path or write_choices(workspace / "tasks")
    model = ScriptedModel(said if callable(said) else lambda _: said, abilities=WRITER)
    return assay.run(model=model, tasks=[str(path)], mc_as_generation=True, no_cache=True, **options)


def right(request: Request) -> str:
    number = int(request.prompt.text.split("Is ")[-1].split()[0])
    return "B" if number % 2 == 0 else "A"


def test_right_letters_score_under_a_name_of_their_own(workspace: Path) -> None:
    done = score(workspace, right)
    assert done.results["choices"] == {"acc_letter,letter": 1.0, "acc_letter_stderr,letter": 0.0}
    assert "acc_letter is not comparable with acc" in done.table()


def test_an_answer_without_a_letter_is_unparsed_and_not_guessed(workspace: Path) -> None:
    done = score(workspace, "yes, of course")
    assert done.outcomes("choices") == {"unparsed": 4}
    assert done.results["choices"]["acc_letter,letter"] == 0.0


def test_a_letter_beyond_the_choices_is_unparsed(workspace: Path) -> None:
    assert score(workspace, "C").outcomes("choices") == {"unparsed": 4}


def test_of_several_right_choices_any_will_do(workspace: Path) -> None:
    path = write_choices(workspace, doc_to_target="{{[0, 1]}}")
    assert score(workspace, "A", path).results["choices"]["acc_letter,letter"] == 1.0


def test_the_results_say_so(workspace: Path) -> None:
    from assay.viewer.exports.lm_eval import build_results

    (note,) = build_results(score(workspace, "A"))["notes"]
    assert "--mc_as_generation" in note


def test_a_group_has_a_line_of_its_own_and_mixes_nothing(workspace: Path) -> None:
    folder = workspace / "tasks"
    write_choices(folder, "one")
    write_choices(folder, "two")
    write_task(
        folder, "sums", metric_list=[{"metric": "acc"}], output_type="loglikelihood", doc_to_target="answer"
    )
    group = (
        "group: all\ntask: [one, two, sums]\naggregate_metric_list: [{metric: acc, weight_by_size: true}]\n"
    )
    (folder / "all.yaml").write_text(group)
    model = ScriptedModel(lambda request: "A" if isinstance(request, Generate) else _likely())
    done = assay.run(
        model=model, tasks=["all"], include_path=[str(folder)], mc_as_generation=True, no_cache=True
    )
    sums = next(one for one in done.estimates if (one.task, one.metric) == ("all", "acc"))
    letters = next(one for one in done.estimates if (one.task, one.metric) == ("all", "acc_letter"))
    assert (sums.scored, letters.scored) == (6, 8)
    assert (sums.value, letters.value) == (1.0, 0.5)


def _likely() -> Any:
    from assay.core.records.responses import LogProbability

    return LogProbability(-1.0, True)


# --- what is refused -----------------------------------------------------------------------------------


def test_without_the_flag_it_is_refused_and_the_flag_is_named(workspace: Path) -> None:
    with pytest.raises(UnsupportedRequest, match="does not support likelihood") as caught:
        plan_run(ScriptedModel(abilities=WRITER), tasks=[str(write_choices(workspace))])
    assert "--mc_as_generation asks for the letter of a choice instead" in caught.value.hint


def test_a_task_whose_own_code_judges_is_refused(workspace: Path) -> None:
    path = write_choices(
        workspace, helpers="def judge(doc, results): return {}\n", process_results=Function("utils.judge")
    )
    with pytest.raises(UnsupportedRequest, match="its `process_results` expects log-probabilities"):
        prompts(path)


def test_a_target_outside_the_choices_is_said(workspace: Path) -> None:
    with pytest.raises(AssayError, match="the target 7 is not one of the 2 choices"):
        prompts(write_choices(workspace, doc_to_target="7"))


def test_other_tasks_of_the_run_are_asked_as_ever(workspace: Path) -> None:
    path = write_task(workspace)
    plain = plan_run(ScriptedModel(), tasks=[str(path)])
    flagged = plan_run(ScriptedModel(), tasks=[str(path)], mc_as_generation=True)
    assert flagged.run_id != plain.run_id
    assert flagged.notes == plain.notes
