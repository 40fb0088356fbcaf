"""The texts of a new task's files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from assay.tasks.drafting import Columns, Draft, template_name

__all__ = ["task_files"]

_METRICS = {
    "multiple_choice": ("acc", "acc_norm"),
    "generate_until": ("exact_match",),
    "loglikelihood_rolling": ("word_perplexity", "byte_perplexity", "bits_per_byte"),
}
_LOWER = {"word_perplexity", "byte_perplexity", "bits_per_byte"}
_TEST = '''"""The task {name}: an answer that is the target gets full marks, on its first documents."""

from pathlib import Path

import assay

TASK = Path(__file__).parent / "{name}.yaml"


def test_prompts_are_made_of_the_data():
    plan = assay.plan(tasks=[str(TASK)], limit=5, model="dummy")
    assert plan.documents > 0


{marks}'''
_FULL_MARKS = """def test_the_target_gets_full_marks(tmp_path):
    run = assay.run(tasks=[str(TASK)], limit=5, model="oracle", output_path=str(tmp_path))
    assert run.results["{name}"]["{metric},{pipeline}"] == 1.0
"""
_PERPLEXITY = """def test_every_text_is_scored(tmp_path):
    run = assay.run(tasks=[str(TASK)], limit=5, model="dummy", output_path=str(tmp_path))
    assert run.results["{name}"]["word_perplexity,none"] > 0
"""


def task_files(
    name: str,
    dataset: Mapping[str, Any],
    split: str,
    names: Sequence[str],
    columns: Columns,
    draft: Draft,
) -> dict[str, str]:
    """File name -> text."""
    return {
        f"{name}.yaml": _yaml(name, dataset, split, draft),
        "utils.py": _helpers(names, columns),
        f"test_{name}.py": _test(name, draft),
    }


def _yaml(name: str, dataset: Mapping[str, Any], split: str, draft: Draft) -> str:
    lines = [f"task: {name}"]
    lines += [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in dataset.items()]
    lines += [
        f"test_split: {split}",
        "process_docs: !function utils.process_docs       # tidies the documents, or leaves some out",
        f"output_type: {draft.output_type}",
    ]
    if draft.doc_to_image:
        lines.append(f"doc_to_image: {draft.doc_to_image}")
    lines.append(f"doc_to_text: {_quoted(draft.doc_to_text)}")
    if draft.doc_to_choice:
        lines.append(f"doc_to_choice: {_quoted(draft.doc_to_choice)}")
    lines.append(f"doc_to_target: {_quoted(draft.doc_to_target)}")
    if draft.output_type == "generate_until":
        lines += _generation(draft)
    lines.append("metric_list:")
    for metric in _METRICS[draft.output_type]:
        better = str(metric not in _LOWER).lower()
        aggregation = metric if metric in _LOWER else "mean"
        if aggregation in ("word_perplexity", "byte_perplexity"):
            aggregation = "weighted_perplexity"
        options = ", ignore_case: true, ignore_punctuation: true" if _loose(metric, draft) else ""
        lines.append(
            f"  - {{metric: {metric}, aggregation: {aggregation}, higher_is_better: {better}{options}}}"
        )
    lines += ["metadata:", "  version: 1.0"]
    return "\n".join(lines) + "\n"


def _loose(metric: str, draft: Draft) -> bool:
    return metric == "exact_match" and not draft.numbers


def _generation(draft: Draft) -> list[str]:
    if draft.numbers:
        return [
            'generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 256, do_sample: false}',
            "filter_list:",
            "  - name: number                                   # the last number that was written",
            "    filter:",
            r'      - {function: regex, regex_pattern: "(-?[0-9][0-9,]*(?:\\.[0-9]+)?)", group_select: -1}',
            "      - {function: take_first}",
        ]
    if draft.exact:
        return ['generation_kwargs: {until: ["\\n"], max_gen_toks: 64, do_sample: false}']
    return [
        'generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 512, do_sample: false}',
        "# long answers are rarely written word for word: think of another metric, or of a judge",
    ]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _helpers(names: Sequence[str], columns: Columns) -> str:
    used = [columns.question, columns.answer, *columns.choices, columns.image]
    renamed = [(name, template_name(name)) for name in used if name and name != template_name(name)]
    lines = [
        '"""Helpers of the task file beside this one."""',
        "",
        "",
        "def process_docs(dataset):",
        '    """The documents to ask. Leave some out with `dataset.filter(...)`."""',
        "    return dataset.map(tidy)",
        "",
        "",
        "def tidy(doc):",
        '    """One document, with columns that templates can name."""',
    ]
    changes = [f"        {json.dumps(new)}: doc[{json.dumps(old)}]," for old, new in renamed]
    question = template_name(columns.question)
    changes.append(f"        {json.dumps(question)}: doc[{json.dumps(columns.question)}].strip(),")
    changes = [
        change
        for at, change in enumerate(changes)
        if not any(_same(change, later) for later in changes[at + 1 :])
    ]
    lines += ["    return {", "        **doc,", *changes, "    }"]
    return "\n".join(lines) + "\n"


def _same(first: str, second: str) -> bool:
    return first.split(":")[0] == second.split(":")[0]


def _test(name: str, draft: Draft) -> str:
    if draft.output_type == "loglikelihood_rolling":
        marks = _PERPLEXITY.format(name=name)
    else:
        pipeline = "number" if draft.numbers else "none"
        marks = _FULL_MARKS.format(name=name, metric=_METRICS[draft.output_type][0], pipeline=pipeline)
    return _TEST.format(name=name, marks=marks)
