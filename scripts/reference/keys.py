"""The page of YAML keys: what each means, and which harness defines it."""

from __future__ import annotations

from assay.tasks.files.task_loader import TASK_KEYS

BOTH, TEXT, MEDIA, OWN = "both", "lm-eval", "lmms-eval", "Assay"

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Name": {
        "task": (BOTH, "The name it is called by."),
        "task_alias": (BOTH, "What tables call it."),
        "tag": (BOTH, "One or several words; `--tasks WORD` means every task that has it."),
        "group": (BOTH, "In a task file: a tag. In a file of its own: see below."),
        "include": (BOTH, "Another YAML file, or several, whose keys come first; relative to this one."),
        "class": (TEXT, "A task written as a Python class: `!function file.Class`."),
        "task_list": (BOTH, "Several tasks in one file, each with keys of its own."),
        "metadata": (
            BOTH,
            "Anything; `version` is reported, `num_fewshot` is what tables say where the prompt itself holds the examples.",
        ),
        "dialect": (
            OWN,
            "`lm_eval` or `lmms_eval`: whose habits count where the two differ; by default known from the keys and the folder.",
        ),
    },
    "Data": {
        "dataset_path": (BOTH, "A dataset of the hub, or `json`, `csv`, `parquet`, `arrow`, or a folder."),
        "dataset_name": (BOTH, "Which configuration of it."),
        "dataset_kwargs": (
            BOTH,
            "Arguments of its loading: `data_files`, `data_dir`, `revision`, `token`, …",
        ),
        "custom_dataset": (TEXT, "A function that returns the splits instead."),
        "training_split": (BOTH, "The split examples are drawn from first."),
        "validation_split": (BOTH, "The split that is asked when there is no `test_split`."),
        "test_split": (BOTH, "The split that is asked."),
        "fewshot_split": (BOTH, "The split examples are drawn from, if it is another."),
        "process_docs": (BOTH, "A function from a split to a split: tidy documents, leave some out."),
        "full_docs": (MEDIA, "Whether helpers see columns of pictures and sounds decoded."),
        "cluster_key": (
            MEDIA,
            "The field whose equal values make documents belong together, for standard errors.",
        ),
    },
    "Prompt": {
        "description": (BOTH, "Text before everything else."),
        "doc_to_text": (BOTH, "What is asked: a template, a column or a function."),
        "doc_to_target": (BOTH, "What is right: a template, a column, a number of a choice, or a function."),
        "doc_to_choice": (
            BOTH,
            "The choices of `multiple_choice`: a list, a template, a column, a mapping or a function.",
        ),
        "doc_to_image": (TEXT, "The pictures of a document."),
        "doc_to_audio": (TEXT, "The sounds of a document."),
        "doc_to_visual": (MEDIA, "Pictures, sounds and videos of a document."),
        "doc_to_messages": (MEDIA, "The whole conversation, for models that chat."),
        "lmms_eval_specific_kwargs": (
            MEDIA,
            "Arguments of those functions, by the model's name, `default` for the rest.",
        ),
        "use_prompt": (TEXT, "A prompt of promptsource: `library:name`."),
        "num_fewshot": (BOTH, "How many examples stand before the question."),
        "fewshot_config": (
            BOTH,
            "Where they come from and how they are written: `sampler`, `samples`, own `doc_to_*`.",
        ),
        "fewshot_delimiter": (BOTH, "Between examples; two line ends by default."),
        "target_delimiter": (BOTH, "Between question and answer; a space by default."),
        "gen_prefix": (TEXT, "How the answer begins."),
    },
    "Answer": {
        "output_type": (
            BOTH,
            "`generate_until`, `multiple_choice`, `loglikelihood`, `loglikelihood_rolling`; of lmms-eval also `generate_until_multi_round`, `generate_until_agentic`, `generate_visual_cot`.",
        ),
        "generation_kwargs": (
            BOTH,
            "`until`, `max_gen_toks` or `max_new_tokens`, `temperature`, `do_sample`, `top_p`, `top_k`, …",
        ),
        "model_specific_generation_kwargs": (MEDIA, "The same by the model's name."),
        "model_specific_target_kwargs": (MEDIA, "Arguments of a target function by the model's name."),
        "repeats": (BOTH, "How often every prompt is asked."),
        "batch_size": (BOTH, "Read, and left to `--batch_size`."),
        "reasoning_tags": (
            MEDIA,
            "What a model thinks stands between these, and is cut out before judging; `none` for nothing.",
        ),
        "auto_strip_thinking": (MEDIA, "The older switch for the same."),
    },
    "Score": {
        "filter_list": (BOTH, "Pipelines of filters, each with a `name`; one `take_first` by default."),
        "metric_list": (
            BOTH,
            "`metric`, `aggregation`, `higher_is_better`; further keys are arguments of the metric; `judge:` for one a model judges.",
        ),
        "process_results": (
            BOTH,
            "A function that judges a document by itself; what it returns are metrics by name.",
        ),
        "process_results_use_image": (MEDIA, "Whether it sees pictures and sounds."),
        "score_key": (MEDIA, "Where a mapping that `process_results` returns keeps its number."),
        "unsafe_code": (
            TEXT,
            "It executes what the model wrote; `--confirm_run_unsafe_code` allows it, in a sandbox.",
        ),
        "should_decontaminate": (
            BOTH,
            "Scores are also reported without documents found in `--decontamination_ngrams_path`.",
        ),
        "doc_to_decontamination_query": (BOTH, "The text that is looked for there."),
    },
}

GROUP = {
    "group": (BOTH, "The group's name."),
    "group_alias": (BOTH, "What tables call it."),
    "task": (
        BOTH,
        "Its members: names, groups, tags, or tasks written out with keys that go before their own.",
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

Every key of a task file, and which harness defines it; a file may mix them. Where the two read a key differently, see
[two dialects](../guides/dialects.md). A value may be a function of a Python file beside it: `!function file.name`. An unknown
key is an error with the nearest name.
"""


def page() -> str:
    """The page."""
    described = {key for keys in SECTIONS.values() for key in keys}
    if described != TASK_KEYS:
        raise SystemExit(f"scripts/reference/keys.py does not describe: {described ^ TASK_KEYS}")
    pieces = [HEAD]
    for title, keys in {**SECTIONS, "Groups": GROUP}.items():
        pieces.append(f"\n## {title}\n\n| key | defined by | what it is |\n|---|---|---|\n")
        pieces += [f"| `{key}` | {owner} | {text} |\n" for key, (owner, text) in keys.items()]
    return "".join(pieces)
