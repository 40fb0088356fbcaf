"""Every built-in task: a complete gold answer gets the full score, alone and together with all other tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.builtin_tasks.fake_hub import columns, picture, put_configs, put_dataset
from tests.builtin_tasks.recorded_lm import builtin_index
from tests.builtin_tasks.small_documents import GSM8K, TRUTHFULQA, lay_out
from tests.builtin_tasks.test_code_tasks import HUMANEVAL, MBPP
from tests.builtin_tasks.test_math import ROWS as MATH
from tests.builtin_tasks.test_mme import FEATURES as MME_FEATURES
from tests.builtin_tasks.test_mme import ROWS as MME
from tests.builtin_tasks.test_mmmu import ROWS as MMMU
from tests.builtin_tasks.test_mmsearch import ROWS as MMSEARCH
from tests.builtin_tasks.test_mmsearch import put_index, put_questions
from tests.builtin_tasks.test_seedbench import put_rows as put_seedbench
from tests.builtin_tasks.test_videomme import put_videos

import assay
from assay.builtin_tasks.bfcl.utils import REPOSITORY as BFCL
from assay.checks.checker import CheckOptions, check_tasks
from assay.core.records.requests import Request
from assay.models.oracle import OracleModel
from assay.tasks.files.selection import select_tasks

LETTERS = {"input": "Which one?\nOptions:\n(A) a ball\n(B) a box", "target": "(B)"}
BBH: dict[str, dict[str, str]] = {
    "boolean_expressions": {"input": "not ( True ) is", "target": "False"},
    "causal_judgement": {"input": "Did he?\nOptions:\n- Yes\n- No", "target": "No"},
    "dyck_languages": {"input": "Complete the rest. Input: [ (", "target": ") ]"},
    "formal_fallacies": {"input": "Valid?\nOptions:\n- valid\n- invalid", "target": "invalid"},
    "multistep_arithmetic_two": {"input": "((1 + 2)) =", "target": "3"},
    "navigate": {"input": "Turn around. Do you return?\nOptions:\n- Yes\n- No", "target": "Yes"},
    "object_counting": {"input": "I have a pen and a cup. How many?", "target": "2"},
    "sports_understanding": {"input": "Is it plausible?", "target": "yes"},
    "web_of_lies": {"input": "Does she tell the truth?", "target": "No"},
    "word_sorting": {"input": "Sort these. List: pear fig kiwi", "target": "fig kiwi pear"},
}
IFEVAL = [
    {
        "key": 1,
        "prompt": "Write without commas.",
        "instruction_id_list": ["punctuation:no_comma"],
        "kwargs": [{"num_bullets": None}],
    }
]
MMLU = ["anatomy", "virology"]
"""Subjects of MMLU: all others differ in their name only (test_mmlu.py)."""

SAME_TEMPLATE = {"hyperbaton", "snarks"}
"""Tasks of BIG-Bench Hard with lettered choices: all others differ in their name only."""

TASKS = [
    name
    for name in sorted(builtin_index().names("task"))
    if (not name.startswith("mmlu_") or name.removeprefix("mmlu_") in MMLU)
    and (not name.startswith("bbh_") or name.removeprefix("bbh_cot_zeroshot_") in {*BBH, *SAME_TEMPLATE})
    and name != "shopdesk_dialogue"  # needs a second model as the user
    and not name.startswith("tau_bench_")  # needs a checkout of tau-bench
]


def list_configs(prefix: str) -> list[str]:
    """Return the `dataset_name` of every built-in task whose name starts like this."""
    tasks = select_tasks([name for name in TASKS if name.startswith(prefix)], builtin_index()).tasks
    return sorted({str(spec.config.get("dataset_name")) for spec in tasks.values()})


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Small datasets for every built-in task that reads one, and an index for the task that searches."""
    root = tmp_path_factory.mktemp("hub")
    put_index(root / "index")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMSEARCH_INDEX", str(root / "index"))
        patch.setenv("HF_HOME", str(root / "home"))
        put_datasets(root)
        yield root


def put_datasets(root: Path) -> None:
    lay_out(root)
    put_configs(root, "openai/openai_humaneval", {"openai_humaneval": {"test": HUMANEVAL}})
    put_configs(root, "google-research-datasets/mbpp", {"full": {"test": MBPP}})
    subjects = list_configs("hendrycks_math_")
    put_configs(root, "EleutherAI/hendrycks_math", {name: {"train": MATH, "test": MATH} for name in subjects})
    solved = [{**row, "answer": answer} for row, answer in zip(MATH, (r"\frac{1}{2}", "10000"), strict=True)]
    put_configs(root, "HuggingFaceH4/MATH-500", {"default": {"test": solved}})
    put_configs(
        root,
        "SaylorTwift/bbh",
        {name: {"test": [BBH.get(name, LETTERS)]} for name in list_configs("bbh_cot_zeroshot_")},
    )
    question = {"question": "What is it?", "subject": "", "choices": ["a", "b", "c", "d"], "answer": 1}
    put_configs(
        root,
        "cais/mmlu",
        {name: {"test": [question], "dev": [question] * 6} for name in list_configs("mmlu_")},
    )
    put_configs(root, "google/IFEval", {"default": {"train": IFEVAL}})
    put_functions(root)
    put_pictures(root)
    put_videos(root, ["clip0"])
    put_questions(root)


def put_functions(root: Path) -> None:
    """Questions of BFCL: one function, and an answer in the language of the category."""
    folder = root / BFCL
    (folder / "possible_answer").mkdir(parents=True)
    for category in (name.removeprefix("bfcl_") for name in TASKS if name.startswith("bfcl_")):
        kind = "String" if "java" in category else "string"
        parameters = {"type": "dict", "properties": {"base": {"type": kind}}, "required": ["base"]}
        question = [[{"role": "user", "content": f"The area of {category}?"}]]
        row = {
            "id": f"{category}_0",
            "question": question,
            "function": [{"name": "area", "parameters": parameters}],
        }
        (folder / f"BFCL_v4_{category}.json").write_text(json.dumps(row) + "\n", "utf-8")
        if "relevance" not in category:
            truth = [{"area": {"base": [base]}} for base in ("ten", "two")[: 1 + ("parallel" in category)]]
            answer = json.dumps({"id": f"{category}_0", "ground_truth": truth})
            (folder / "possible_answer" / f"BFCL_v4_{category}.json").write_text(answer + "\n", "utf-8")


def put_pictures(root: Path) -> None:
    charts = [{"type": "human_test", "question": "How many?", "answer": "14", "image": picture(1)}]
    texts = columns(type="string", question="string", answer="string", image="image")
    put_dataset(root, "lmms-lab-encoder/ChartQA", charts, features=texts)
    pairs = [{**row, "image": picture(at // 2)} for at, row in enumerate(MME)]
    put_dataset(root, "lmms-lab-encoder/MME", pairs, features=columns(**MME_FEATURES, image="image"))
    names = ("id", "question_type", "options", "answer", "question")
    rows = [
        {**dict(zip(names, row, strict=True)), "image_1": picture(at), "image_2": picture(100 + at)}
        for at, row in enumerate(MMMU)
    ]
    features = columns(**dict.fromkeys(names, "string"), image_1="image", image_2="image")
    put_dataset(root, "lmms-lab-encoder/MMMU", rows, features=features, split="validation")
    problem = {"id": "1", "question": "How many?\n<image1>", "options": [], "answer": "6", "level": 1}
    features = columns(
        id="string",
        question="string",
        options="string[]",
        answer="string",
        level="int64",
        subject="string",
        decoded_image="image",
    )
    row = {**problem, "subject": "counting", "decoded_image": picture(3)}
    put_dataset(root, "MathLLMs/MathVision", [row], features=features, split=("testmini", "test"))
    put_seedbench(root, [1, 2])


class GoldModel(OracleModel):
    """Answers with the target, and with a complete answer where the target is not one."""

    def _answer_one(self, request: Request) -> Any:
        text = complete_answer(request, self._targets.get((request.task, request.document), ()))
        if text is None:
            return super()._answer_one(request)
        return assay.Response(request_id=request.id, value=text, finish="stop")


INCOMPLETE_TARGETS = ("humaneval", "mbpp", "minerva", "gsm8k_cot", "bbh_", "ifeval", "quickstart_addition")


def complete_answer(request: Request, targets: Sequence[Any]) -> str | None:
    """Return a complete answer for a task whose target is not one; None where the target is."""
    task, document = request.task, request.document
    if task.startswith("humaneval"):
        return HUMANEVAL[document]["canonical_solution"]
    if task == "mbpp":
        return str(MBPP[document]["code"])
    if task.startswith("minerva"):
        answer = (r"\frac{1}{2}", "10{,}000")[document]
        return f"We add. Final Answer: The final answer is ${answer}$. I hope it is correct."
    if task.startswith("gsm8k_cot"):
        number = GSM8K["main"]["test"][document]["answer"].rpartition("#### ")[2]
        return f" So it is. The answer is {number}."
    if task.startswith("bbh_"):
        name = task.removeprefix("bbh_cot_zeroshot_")
        return f" Step by step. The answer is {BBH.get(name, LETTERS)['target']}."
    if task == "quickstart_addition":
        return f" That is 1 + 1 = {targets[0]}."
    if task == "ifeval":
        return "There are none."
    if task == "firststeps_ifeval":
        return ("please go and vote, my friend.", "WE ARE GIFTED AND YOU ARE NOT")[document]
    if task == "mmsearch_end2end":
        row, round_ = MMSEARCH[document], request.index
        return str((row["gt_requery"], "<Website 1>", row["gt_answer"])[round_])
    if task == "truthfulqa_gen":
        return f"{TRUTHFULQA['generation']['validation'][document]['best_answer']}."
    return None


def run(tasks: list[str], hub: Path, folder: Path) -> Mapping[str, Mapping[str, Any]]:
    done = assay.run(
        model=GoldModel(),
        tasks=tasks,
        data_root=str(hub),
        output_path=str(folder),
        confirm_run_unsafe_code=True,
        no_cache=True,
        log_samples=False,
        bootstrap_iters=0,
        limit=2,
    )
    return done.results


@pytest.fixture(scope="module")
def together(hub: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, Any]]:
    """The results of every task in one run."""
    return run(TASKS, hub, tmp_path_factory.mktemp("together"))


BEST = {
    "word_perplexity": 1.0,
    "byte_perplexity": 1.0,
    "bits_per_byte": 0.0,
    "mathvision_standard_eval": 100.0,
    "mme_perception_score": 200.0,
    "videomme_perception_score": 100.0,
    **{f"{measure}_max": 100.0 for measure in ("bleu", "rouge1", "rouge2", "rougeL")},
}
"""The best values of metrics whose best value is not 1."""


@pytest.mark.parametrize("task", TASKS)
def test_a_gold_answer_gets_the_full_score(task: str, together: Mapping[str, Mapping[str, Any]]) -> None:
    scores = {
        key: value
        for key, value in together[task].items()
        if isinstance(value, float) and "_stderr" not in key and "_diff" not in key
    }
    assert scores
    assert scores == pytest.approx({key: BEST.get(key.partition(",")[0], 1.0) for key in scores})


def test_tasks_score_the_same_alone_and_together(
    hub: Path, tmp_path: Path, together: Mapping[str, Mapping[str, Any]]
) -> None:
    alone = {task: dict(run([task], hub, tmp_path)[task]) for task in TASKS}
    assert alone == {task: dict(together[task]) for task in TASKS}


def test_a_target_that_is_not_an_answer_is_reported(hub: Path) -> None:
    """The tasks that need a complete answer here are those that say so."""
    tasks = select_tasks(TASKS, builtin_index()).tasks
    said = {name for name, spec in tasks.items() if not spec.target_is_answer}
    assert said == {name for name in TASKS if name.startswith(INCOMPLETE_TARGETS)}
    plan = assay.plan(model=OracleModel(), tasks=["gsm8k_cot", "gsm8k"], data_root=str(hub))
    assert (
        "gsm8k_cot: the target is not a complete answer, so `oracle` does not get the full score"
        in plan.notes
    )
    (subject,) = check_tasks(["gsm8k_cot"], builtin_index(), CheckOptions(data=False)).subjects
    assert "target-not-an-answer" in {finding.kind for finding in subject.findings}
