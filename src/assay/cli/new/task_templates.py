"""Templates for the files of a new task."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from assay.tasks.drafts import ColumnRoles, TaskDraft, to_template_name

__all__ = ["build_task_files"]

_METRICS = {
    "multiple_choice": ("acc", "acc_norm"),
    "generate_until": ("exact_match",),
    "loglikelihood_rolling": ("word_perplexity", "byte_perplexity", "bits_per_byte"),
}
_LOWER_IS_BETTER = {"word_perplexity", "byte_perplexity", "bits_per_byte"}
_TEST_FILE = '''"""Tests of the task {name} on its first documents."""

from pathlib import Path

import assay

TASK = Path(__file__).parent / "{name}.yaml"
OPTIONS = {{{options}}}


def test_prompts_render():
    plan = assay.plan(**OPTIONS, model="dummy")
    assert plan.documents > 0


{score_test}'''
_TARGET_TEST = """def test_target_scores_one(tmp_path):
    run = assay.run(**OPTIONS, model="oracle", output_path=str(tmp_path))
    assert run.results["{name}"]["{metric},{pipeline}"] == 1.0
"""
_PERPLEXITY_TEST = """def test_texts_are_scored(tmp_path):
    run = assay.run(**OPTIONS, model="dummy", output_path=str(tmp_path))
    assert run.results["{name}"]["word_perplexity,none"] > 0
"""


def build_task_files(
    name: str,
    dataset: Mapping[str, Any],
    split: str,
    names: Sequence[str],
    columns: ColumnRoles,
    draft: TaskDraft,
) -> dict[str, str]:
    """Return the content of each file by name."""
    return {
        f"{name}.yaml": _render_yaml(name, dataset, split, draft),
        "utils.py": _render_helpers(names, columns),
        f"test_{name}.py": _render_test(name, dataset, draft),
    }


def _render_yaml(name: str, dataset: Mapping[str, Any], split: str, draft: TaskDraft) -> str:
    lines = [f"# {name}: say in one line what the task asks", f"task: {name}"]
    lines += [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in dataset.items()]
    lines += [
        f"test_split: {split}",
        "process_docs: !function utils.process_docs       # cleans or filters the documents",
        f"output_type: {draft.output_type}",
    ]
    if draft.doc_to_image:
        lines.append(f"doc_to_image: {draft.doc_to_image}")
    lines.append("# the prompt: a Jinja template that can use every column")
    lines.append(f"doc_to_text: {_quote(draft.doc_to_text)}")
    if draft.doc_to_choice:
        lines.append(f"doc_to_choice: {_quote(draft.doc_to_choice)}")
    lines.append(
        "# the number of the correct choice, from 0 on"
        if draft.doc_to_choice
        else "# the text whose probability is measured"
        if draft.output_type.scores_whole_text
        else "# the expected answer"
    )
    lines.append(f"doc_to_target: {_quote(draft.doc_to_target)}")
    if draft.output_type.generates_text:
        lines += _render_generation(draft)
    lines.append("metric_list:")
    for metric in _METRICS[draft.output_type]:
        better = str(metric not in _LOWER_IS_BETTER).lower()
        aggregation = metric if metric in _LOWER_IS_BETTER else "mean"
        if aggregation in ("word_perplexity", "byte_perplexity"):
            aggregation = "weighted_perplexity"
        options = (
            ", ignore_case: true, ignore_punctuation: true" if _should_ignore_case(metric, draft) else ""
        )
        lines.append(
            f"  - {{metric: {metric}, aggregation: {aggregation}, higher_is_better: {better}{options}}}"
        )
    lines += ["metadata:", "  version: 1.0"]
    return "\n".join(lines) + "\n"


def _should_ignore_case(metric: str, draft: TaskDraft) -> bool:
    return metric == "exact_match" and not draft.numbers


def _render_generation(draft: TaskDraft) -> list[str]:
    if draft.numbers:
        return [
            'generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 256, do_sample: false}',
            "filter_list:",
            "  - name: number                                   # the last number in the response",
            "    filter:",
            r'      - {function: regex, regex_pattern: "(-?[0-9][0-9,]*(?:\\.[0-9]+)?)", group_select: -1}',
            "      - {function: take_first}",
        ]
    if draft.exact:
        return ['generation_kwargs: {until: ["\\n"], max_gen_toks: 64, do_sample: false}']
    return [
        'generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 512, do_sample: false}',
        "# long answers rarely match exactly: consider another metric or a judge",
    ]


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _render_helpers(names: Sequence[str], columns: ColumnRoles) -> str:
    used = [columns.question, columns.answer, *columns.choices, columns.image]
    renamed = [(name, to_template_name(name)) for name in used if name and name != to_template_name(name)]
    lines = [
        '"""Helper functions of the task file in this folder."""',
        "",
        "",
        "def process_docs(dataset):",
        '    """Return the documents to evaluate. Use `dataset.filter(...)` to drop some."""',
        "    return dataset.map(clean)",
        "",
        "",
        "def clean(doc):",
        '    """Return a document whose columns templates can use."""',
    ]
    changes = [f"        {json.dumps(new)}: doc[{json.dumps(old)}]," for old, new in renamed]
    question = to_template_name(columns.question)
    changes.append(f"        {json.dumps(question)}: doc[{json.dumps(columns.question)}].strip(),")
    changes = [
        change
        for index, change in enumerate(changes)
        if not any(_have_same_key(change, later) for later in changes[index + 1 :])
    ]
    lines += ["    return {", "        **doc,", *changes, "    }"]
    return "\n".join(lines) + "\n"


def _have_same_key(first: str, second: str) -> bool:
    return first.split(":")[0] == second.split(":")[0]


def _render_test(name: str, dataset: Mapping[str, Any], draft: TaskDraft) -> str:
    if draft.output_type.scores_whole_text:
        score_test = _PERPLEXITY_TEST.format(name=name)
    else:
        pipeline = "number" if draft.numbers else "none"
        score_test = _TARGET_TEST.format(name=name, metric=_METRICS[draft.output_type][0], pipeline=pipeline)
    options = '"tasks": [str(TASK)], "limit": 5'
    if _is_outside(dataset):
        options += ', "allow_data_outside": True'  # pytest may run in another folder
    return _TEST_FILE.format(name=name, options=options, score_test=score_test)


def _is_outside(dataset: Mapping[str, Any]) -> bool:
    """Return whether the data file is not in the folder of the task."""
    files = dataset.get("dataset_kwargs", {}).get("data_files", {}).values()
    return any(PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts for name in files)
