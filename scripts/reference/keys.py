"""Generate the page of task file keys: their meaning and the harness that defines them."""

from __future__ import annotations

from assay.tasks.files.task_loader import TASK_KEYS

BOTH, TEXT, MEDIA, OWN = "both", "lm-eval", "lmms-eval", "Assay"

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Name": {
        "task": (BOTH, "The name of the task."),
        "task_alias": (BOTH, "The display name in tables."),
        "tag": (BOTH, "One or more tags; `--tasks TAG` selects every task with the tag."),
        "group": (BOTH, "In a task file: a tag. In a group file: see below."),
        "group_alias": (BOTH, "In a task file of an older version: no effect. In a group file: see below."),
        "include": (BOTH, "One or more YAML files to inherit keys from, relative to this file."),
        "class": (TEXT, "A Python class that implements the task: `!function file.Class`."),
        "task_list": (TEXT, "No effect, as in lm-eval: a file defines one task."),
        "metadata": (
            BOTH,
            "Any mapping. `version` is reported; `num_fewshot` is shown in tables if the prompt itself contains the examples; `target_is_answer: false` says that the target is not a complete answer.",
        ),
        "dialect": (
            OWN,
            "`lm_eval` or `lmms_eval`: the conventions to follow where the two differ; inferred from the keys and the folder by default.",
        ),
    },
    "Data": {
        "dataset_path": (BOTH, "A dataset on the hub, or `json`, `csv`, `parquet`, `arrow`, or a folder."),
        "dataset_name": (BOTH, "The configuration of the dataset."),
        "dataset_kwargs": (
            BOTH,
            "Arguments for loading the dataset: `data_files` and `data_dir` (relative to the task file), `revision`, `token`, …",
        ),
        "custom_dataset": (TEXT, "A function that returns the splits, instead of `dataset_path`."),
        "training_split": (BOTH, "The first choice of split for few-shot examples."),
        "validation_split": (BOTH, "The split to evaluate if there is no `test_split`."),
        "test_split": (BOTH, "The split to evaluate."),
        "fewshot_split": (BOTH, "The split for few-shot examples, if different."),
        "process_docs": (BOTH, "A function that transforms or filters the documents of a split."),
        "full_docs": (MEDIA, "Whether helpers get image and audio columns decoded."),
        "cluster_key": (
            BOTH,
            "The field that groups documents into clusters, for intervals and comparisons.",
        ),
    },
    "Prompt": {
        "description": (BOTH, "Text before the rest of the prompt."),
        "doc_to_text": (BOTH, "The question: a template, a column or a function."),
        "doc_to_target": (BOTH, "The target: a template, a column, the index of a choice, or a function."),
        "doc_to_choice": (
            BOTH,
            "The choices of `multiple_choice`: a list, a template, a column, a mapping or a function.",
        ),
        "doc_to_image": (TEXT, "The images of a document."),
        "doc_to_audio": (TEXT, "The audio of a document."),
        "doc_to_visual": (MEDIA, "Images, audio and videos of a document."),
        "doc_to_messages": (MEDIA, "The complete conversation, for chat models."),
        "lmms_eval_specific_kwargs": (
            MEDIA,
            "Arguments of these functions by model name; `default` for other models.",
        ),
        "use_prompt": (
            TEXT,
            "A prompt by name: `promptsource:NAME` (`ASSAY_PROMPTSOURCE` names the source of promptsource) or `FILE.yaml:NAME`. In a member of a group, a pattern (`promptsource:*`) makes a task of every prompt.",
        ),
        "num_fewshot": (BOTH, "The number of few-shot examples."),
        "fewshot_config": (
            BOTH,
            "The source and format of few-shot examples: `sampler`, `samples`, separate `doc_to_*`.",
        ),
        "fewshot_delimiter": (BOTH, "The separator between examples; two newlines by default."),
        "target_delimiter": (BOTH, "The separator between question and answer; a space by default."),
        "choice_column": (
            OWN,
            "The column with the texts of the choices, such as `options` or `choices.text`. Templates then have `choice_texts`, `choice_letters` and `choice_list` (`A. …` per line), and variants can change order and letters.",
        ),
        "choice_letters": (OWN, "The letters of `choice_column`, a list; default: A, B, C, …"),
        "variants": (
            OWN,
            "Other ways to ask the documents, in the same run: a list of mappings with `name` and other values of templates, delimiters, `choice_order`, `choice_letters`, `fewshot_seed`, `fewshot_order`, `system_instruction`. See [prompt variants](../guides/prompt-variants.md).",
        ),
        "gen_prefix": (TEXT, "The start of the answer, given to the model."),
    },
    "Answer": {
        "output_type": (
            BOTH,
            "`generate_until`, `multiple_choice`, `loglikelihood`, `loglikelihood_rolling`; in lmms-eval also `generate_until_multi_round`, `generate_until_agentic`, `generate_visual_cot`; in Assay also `agent`.",
        ),
        "generation_kwargs": (
            BOTH,
            "`until`, `max_gen_toks` or `max_new_tokens`, `temperature`, `do_sample`, `top_p`, `top_k`, …",
        ),
        "model_specific_generation_kwargs": (MEDIA, "The same, by model name."),
        "model_specific_target_kwargs": (MEDIA, "Arguments of the target function, by model name."),
        "repeats": (BOTH, "The number of responses per prompt."),
        "batch_size": (BOTH, "Ignored; use `--batch_size`."),
        "tools": (
            OWN,
            "The functions that the model may call: a list of JSON schemas, a column, a file, or a function. In an agent task: names and functions.",
        ),
        "tool_choice": (OWN, "`auto`, `none`, `required`, or the name of the tool that must be called."),
        "parallel_tool_calls": (OWN, "Whether a response may have several calls."),
        "tool_calls": (
            OWN,
            "How the model gets the tools: `native`, or as text with calls in `json`, `python` or `xml`; `auto` by default.",
        ),
        "doc_to_tool_prompt": (OWN, "The whole prompt for models that get the tools as text."),
        "solver": (OWN, "How an agent works: `tool_loop`, `react`, or a class (`!function file.Class`)."),
        "environment": (OWN, "The class on whose objects the tools of an agent act."),
        "limits": (OWN, "When an agent is stopped: `max_turns`, `max_tokens`, `max_cost`, …"),
        "user": (OWN, "The user that an agent talks to: a script, or a model with instructions."),
        "in_doubt": (
            OWN,
            "What happens after a crash during a call that must not run twice: `end` the document, or `report` it to the model.",
        ),
        "response_format": (OWN, "The JSON schema that an answer must match, or `json_object`."),
        "reasoning_tags": (
            MEDIA,
            "The tags around the model's reasoning, which is removed before scoring; `none` to keep it.",
        ),
        "auto_strip_thinking": (MEDIA, "The older form of `reasoning_tags`."),
    },
    "Score": {
        "filter_list": (BOTH, "Filter pipelines, each with a `name`; a single `take_first` by default."),
        "metric_list": (
            BOTH,
            "`metric`, `aggregation`, `higher_is_better`; further keys are arguments of the metric; `judge:` scores with an LLM judge.",
        ),
        "process_results": (
            BOTH,
            "A function that scores a document and returns metrics by name.",
        ),
        "process_results_use_image": (MEDIA, "Whether `process_results` gets images and audio."),
        "score_key": (MEDIA, "The key of the score in a mapping that `process_results` returns."),
        "unsafe_code": (
            TEXT,
            "The task executes code that the model writes, in a sandbox; requires `--confirm_run_unsafe_code`.",
        ),
        "should_decontaminate": (
            BOTH,
            "Also report scores without the documents found in `--decontamination_ngrams_path`.",
        ),
        "doc_to_decontamination_query": (BOTH, "The text to search for in the corpus."),
    },
}

GROUP = {
    "group": (BOTH, "The name of the group."),
    "group_alias": (BOTH, "The display name in tables."),
    "task": (
        BOTH,
        "The members: names of tasks, groups or tags, or tasks with keys that override their own.",
    ),
    "aggregate_metric_list": (
        BOTH,
        "`metric`, `aggregation` (`mean` or a function), `weight_by_size`, `filter_list`.",
    ),
    "metadata": (BOTH, "`version` is reported."),
}

HEAD = """\
# Keys of task files

<!-- made by scripts/generate_reference.py: change scripts/reference/keys.py instead -->

This page lists every key of a task file and the harness that defines it; a file can mix them. If the two harnesses read a key
differently, [dialects](../guides/dialects.md) explains how. A value can be a function in a Python file in the same folder:
`!function file.name`. An unknown key is an error that names the closest valid key.
"""


def generate_page() -> str:
    """Return the page."""
    described = {key for keys in SECTIONS.values() for key in keys}
    if described != TASK_KEYS:
        raise SystemExit(f"scripts/reference/keys.py describes the wrong keys: {described ^ TASK_KEYS}")
    pieces = [HEAD]
    for title, keys in {**SECTIONS, "Groups": GROUP}.items():
        pieces.append(f"\n## {title}\n\n| key | defined by | description |\n|---|---|---|\n")
        pieces += [f"| `{key}` | {owner} | {text} |\n" for key, (owner, text) in keys.items()]
    return "".join(pieces)
