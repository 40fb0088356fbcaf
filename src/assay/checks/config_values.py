"""Check the types of values that the task loader passes on without validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from assay.checks.findings import Findings
from assay.core.errors import AssayError
from assay.core.records.specs import TaskSpec
from assay.tasks.prompts.named_prompts import load_named_prompt

__all__ = ["check_config_values", "find_token_limits", "is_number"]

_TOKEN_LIMIT_KEYS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_KNOWN_SETTINGS = (
    *_TOKEN_LIMIT_KEYS,
    *(
        "until do_sample temperature top_p top_k min_p num_beams repetition_penalty presence_penalty "
        "frequency_penalty length_penalty no_repeat_ngram_size seed think_end_token skip_special_tokens stop "
        "reasoning_effort thinking_budget include_reasoning"
    ).split(),
)
_SAMPLERS = ("default", "first_n")


def is_number(value: Any) -> bool:
    """Return whether a value is a number and not a boolean."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def find_token_limits(settings: Mapping[str, Any]) -> dict[str, int]:
    """Return the settings that limit the length of an answer, if they are numbers."""
    return {key: settings[key] for key in _TOKEN_LIMIT_KEYS if is_number(settings.get(key))}


def check_config_values(spec: TaskSpec, findings: Findings) -> None:
    """Check field definitions, few-shot settings and generation settings."""
    if spec.config.get("class") is not None:
        return
    _check_fields(spec, findings)
    _check_fewshot(spec, findings)
    _check_setting_types(spec, findings)
    try:
        load_named_prompt(spec)
    except AssayError as error:
        findings.add_exception("template", error)
    metadata = spec.config.get("metadata")
    if metadata is not None and not isinstance(metadata, (Mapping, list)):
        findings.error("key", f"`metadata` must be a mapping, not {metadata!r}", spec.place("metadata"))
    alias = spec.config.get("task_alias")
    if alias is not None and not isinstance(alias, str):
        findings.warning("key", f"`task_alias` should be a string, not {alias!r}", spec.place("task_alias"))


def _is_text(value: Any) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


_FIELD_TYPES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "doc_to_text": (_is_text, "a template, a column or a function"),
    "doc_to_target": (
        lambda value: _is_text(value) or isinstance(value, list),
        "a template, a column, a number, a list or a function",
    ),
    "doc_to_choice": (
        lambda value: isinstance(value, (str, list, Mapping)),
        "a list, a mapping, a column, a template or a function",
    ),
    "doc_to_image": (lambda value: isinstance(value, (str, list)), "a column, a list or a function"),
    "doc_to_audio": (lambda value: isinstance(value, (str, list)), "a column, a list or a function"),
    "doc_to_visual": (lambda value: callable(value) or isinstance(value, str), "a function or a column"),
    "doc_to_messages": (callable, "a function"),
    "description": (lambda value: isinstance(value, str), "a string, a template or a function"),
}


def _check_fields(spec: TaskSpec, findings: Findings) -> None:
    own = {key: spec.config.get(key) for key in _FIELD_TYPES}
    fewshot = {
        f"fewshot_config.{key}": getattr(spec.fewshot, key)
        for key in ("doc_to_text", "doc_to_target", "doc_to_choice")
    }
    for key, value in (own | fewshot).items():
        fits, meaning = _FIELD_TYPES[key.rpartition(".")[2]]
        if value is not None and not callable(value) and not fits(value):
            findings.error("key", f"`{key}` must be {meaning}, not {value!r:.60}", spec.place(key))
    prompt = (spec.doc_to_text, spec.doc_to_messages, spec.doc_to_visual, spec.use_prompt)
    if not spec.output_type.scores_whole_text and all(field is None for field in prompt):
        findings.warning("empty-prompt", "the task has no `doc_to_text`: every prompt is empty", spec.path)
    targets = (spec.doc_to_target, spec.process_results, spec.use_prompt)
    if not spec.output_type.is_agent and all(
        field is None for field in targets
    ):  # an environment knows its own
        findings.warning("no-target", "the task has no `doc_to_target`: no answer can be correct", spec.path)


def _check_fewshot(spec: TaskSpec, findings: Findings) -> None:
    own = spec.fewshot
    if not isinstance(own.sampler, str) or own.sampler not in _SAMPLERS:
        close = get_close_matches(str(own.sampler), _SAMPLERS, n=1)
        findings.error(
            "fewshot",
            f"unknown few-shot sampler `{own.sampler}`",
            spec.place("fewshot_config.sampler"),
            f"did you mean `{close[0]}`?" if close else "`default` or `first_n`",
        )
    samples = own.samples
    rows = isinstance(samples, list) and all(isinstance(row, Mapping) for row in samples)
    if samples is not None and not callable(samples) and not rows:
        findings.error(
            "fewshot",
            f"`samples` must be a list of mappings or a function, not {samples!r:.60}",
            spec.place("fewshot_config.samples"),
        )
    for key, kind, meaning in (
        ("split", str, "a string"),
        ("fewshot_delimiter", str, "a string"),
        ("target_delimiter", str, "a string"),
        ("gen_prefix", str, "a string"),
    ):
        value = getattr(own, key)
        if value is not None and not isinstance(value, kind):
            findings.error(
                "key", f"`{key}` must be {meaning}, not {value!r}", spec.place(f"fewshot_config.{key}")
            )
    process: Any = own.process_docs
    if process is not None and not callable(process):
        findings.error(
            "key",
            f"`process_docs` must be a function, not {process!r}",
            spec.place("fewshot_config.process_docs"),
        )


def _check_setting_types(spec: TaskSpec, findings: Findings) -> None:
    given = spec.config.get("generation_kwargs")
    if not isinstance(given, Mapping):
        return
    if not spec.output_type.generates_text:
        findings.note(
            "no-effect",
            f"`generation_kwargs` has no effect: a {spec.output_type} task generates no text",
            spec.place("generation_kwargs"),
        )
        return
    for key, value in given.items():
        place = spec.place(f"generation_kwargs.{key}")
        expected = _find_expected_type(str(key), value)
        if expected:
            findings.error("key", f"`{key}` must be {expected}, not {value!r:.60}", place)
        close = get_close_matches(str(key), _KNOWN_SETTINGS, n=1, cutoff=0.8)
        if key not in _KNOWN_SETTINGS and close:
            findings.warning(
                "setting",
                f"unknown generation setting `{key}`; models may reject or ignore it",
                place,
                f"did you mean `{close[0]}`?",
            )


def _find_expected_type(key: str, value: Any) -> str:
    """Return what a setting must be if its value is wrong, else an empty string."""
    if value is None:
        return ""
    if key == "until":
        texts = value if isinstance(value, list) else [value]
        return "" if all(isinstance(text, str) for text in texts) else "a string or a list of strings"
    if key == "do_sample":
        return "" if isinstance(value, bool) else "true or false"
    if key in _TOKEN_LIMIT_KEYS:
        return (
            ""
            if isinstance(value, int) and not isinstance(value, bool) and value > 0
            else "a positive integer"
        )
    if key == "temperature":
        return "" if not is_number(value) or value >= 0 else "a number of at least 0"
    if key == "top_p":
        return "" if is_number(value) and 0 <= value <= 1 else "a number from 0 to 1"
    return ""
