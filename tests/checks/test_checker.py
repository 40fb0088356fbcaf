"""Every check reports its problem and nothing else; a correct task has no findings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.checks.test_groups import GROUPS, collect_findings, list_kinds
from tests.making import ROWS, Function, write_choices, write_task, write_texts

from assay.checks.checker import CheckOptions, check_tasks
from assay.checks.findings import FINDING_KINDS
from assay.tasks.files.index import TaskIndex, builtin_root

HELPERS = """
import json

def one(doc): return "x"
def said(doc): return [{"role": "user", "content": [{"type": "text", "text": "x"}]}]
def two(doc, results): return {"exact_match": 1.0}
def none(): return []
def pair(items): return 1.0
def wrong(a, b, c, d): return "x"
def rounds(doc, previous_output=None, round_idx=None, previous_round_info=None): return "x"
def broken(doc): raise RuntimeError("no such luck")
def late(doc):
    import no_such_package_anywhere
    return "x"
def caller(doc): return late(doc)
def careful(doc):
    try:
        import no_such_package_anywhere
    except ImportError:
        pass
    return "x"
number = 5
"""


def metric(name: Any = "exact_match", **keys: Any) -> list[dict[str, Any]]:
    return [{"metric": name, "aggregation": "mean", "higher_is_better": True, **keys}]


def pipeline(*steps: Mapping[str, Any] | str, name: str = "p") -> dict[str, Any]:
    return {
        "name": name,
        "filter": [step if isinstance(step, dict) else {"function": step} for step in steps],
    }


TEN_WORDS = [{"question": "Count!", "answer": "one two three four five six seven eight nine ten"}]
TWO_LINES = [{"question": "Write two lines.", "answer": "roses are red\nviolets are blue"}]
MULTI_ROUND: dict[str, Any] = {
    "output_type": "generate_until_multi_round",
    "doc_to_text": Function("utils.rounds"),
    "process_results": Function("utils.two"),
}
AGENT: dict[str, Any] = {"output_type": "agent"}
AGENTIC: dict[str, Any] = {**MULTI_ROUND, "output_type": "generate_until_agentic", "process_results": None}
FUNCTION_METRIC = Function("utils.pair")

# name, keys of a generating task, what is found, a part of the message
GENERATING: list[tuple[str, dict[str, Any], list[tuple[str, str]], str]] = [
    ("a correct task", {}, [], ""),
    ("an unknown key", {"doc_to_txt": "x"}, [("error", "key")], "no key `doc_to_txt`"),
    ("a wrong type", {"test_split": 5}, [("error", "key"), ("error", "key")], "must be a text"),
    ("a field of a wrong type", {"doc_to_text": [1]}, [("error", "key"), ("error", "document")], "`doc_to_text` must be"),
    ("a visual that is not a function", {"doc_to_visual": 5}, [("error", "key"), ("error", "document")], "a function"),
    ("a visual that is not a column", {"doc_to_visual": "image"}, [("error", "document")], "a function or a column"),
    ("metadata of a wrong type", {"metadata": "v1"}, [("error", "key")], "`metadata` must be"),
    ("an alias of a wrong type", {"task_alias": 5}, [("warning", "key")], "`task_alias`"),
    ("no target", {"doc_to_target": None}, [("warning", "no-target")], "no `doc_to_target`"),
    ("no question", {"doc_to_text": None}, [("warning", "empty-prompt"), ("warning", "empty-prompt")], "no `doc_to_text`"),
    ("an empty prompt", {"doc_to_text": " "}, [("warning", "empty-prompt")], "prompt is empty: documents 0, 1"),
    ("a prompt of a missing package", {"use_prompt": "promptsource:x"}, [("error", "template")], "no release for Python"),
    ("a missing function", {"doc_to_text": Function("utils.onee")}, [("error", "function")], "no function `onee`"),
    ("a missing helper file", {"doc_to_text": Function("nowhere.one")}, [("error", "function")], "helper file not found"),
    ("a name that is not a function", {"doc_to_text": Function("utils.number")}, [("error", "function")], "not a function"),
    ("too many parameters", {"doc_to_text": Function("utils.wrong")}, [("error", "parameters")], "with 1 argument"),
    ("too few parameters", {"process_results": Function("utils.one")}, [("error", "parameters")], "with 2 arguments"),
    ("a metric with wrong parameters", {"metric_list": metric(Function("utils.wrong"))}, [("error", "parameters")], "one pair"),
    ("an aggregation with parameters", {"metric_list": metric(aggregation=Function("utils.wrong"))}, [("error", "parameters")], "cannot be called"),
    ("a deferred import", {"process_docs": None, "doc_to_text": Function("utils.late")}, [("warning", "package"), ("error", "document")], "which is not installed"),
    ("a deferred import of a called function", {"description": Function("utils.caller")}, [("warning", "package"), ("error", "document")], "which is not installed"),
    ("an optional import", {"doc_to_text": Function("utils.careful")}, [], ""),
    ("a function that fails", {"doc_to_text": Function("utils.broken")}, [("error", "document")], "document 0 and 4 more: the code of the task"),
    ("an unknown metric", {"metric_list": metric("exact_macth")}, [("error", "scoring")], "no metric is called `exact_macth`"),
    ("an unknown aggregation", {"metric_list": metric(aggregation="meen")}, [("error", "scoring")], "no aggregation is called"),
    ("an unknown metric argument", {"metric_list": metric(ignore_cas=True)}, [("error", "scoring")], "does not accept"),
    ("a pair with a mean", {"metric_list": metric("bleu")}, [("error", "metric-fit")], "`mean` cannot aggregate"),
    ("a number with a corpus aggregation", {"metric_list": metric(aggregation="bleu")}, [("error", "metric-fit")], "`bleu` cannot aggregate"),
    ("a metric twice", {"metric_list": [*metric(), *metric()]}, [("warning", "repeated-metric")], "listed twice"),
    ("a direction that is not a boolean", {"metric_list": metric(higher_is_better="yes")}, [("error", "key")], "true or false"),
    ("a misspelt key of a metric", {"metric_list": [{"metric": "exact_match", "agregation": "mean"}]}, [("error", "scoring"), ("warning", "metric-key")], "did you mean"),
    ("a bad pattern to ignore", {"metric_list": metric(regexes_to_ignore=["("])}, [("error", "regex")], "invalid pattern"),
    ("a custom metric without aggregation", {"metric_list": [{"metric": FUNCTION_METRIC}]}, [("warning", "unsaid")], "`aggregation` and `higher_is_better`"),
    ("an unknown filter", {"filter_list": [pipeline("take_frist")]}, [("error", "scoring")], "no filter is called"),
    ("an unknown filter argument", {"filter_list": [pipeline({"function": "regex", "pattern": "x"}, "take_first")]}, [("error", "scoring")], "cannot create the filter"),
    ("a bad regular expression", {"filter_list": [pipeline({"function": "regex", "regex_pattern": "("}, "take_first")]}, [("error", "scoring")], "cannot create the filter"),
    ("a regular expression without group", {"filter_list": [pipeline({"function": "regex", "regex_pattern": "[0-9]+"}, "take_first")]}, [("note", "regex")], "no group"),
    ("a regular expression that matches the empty string", {"filter_list": [pipeline({"function": "regex", "regex_pattern": "([0-9]*)"}, "take_first")]}, [("warning", "regex")], "empty string"),
    ("a pipeline that ends in a list", {"filter_list": [pipeline("lowercase")]}, [("warning", "filter-list")], "returns a list"),
    ("a filter after the last", {"filter_list": [pipeline("take_first", "lowercase")]}, [("warning", "filter-order")], "characters"),
    ("two pipelines of one name", {"filter_list": [pipeline("take_first"), pipeline("take_first")]}, [("error", "repeated-pipeline")], "overwrite"),
    ("more responses than repeats", {"filter_list": [pipeline({"function": "take_first_k", "k": 3}, "take_first")]}, [("error", "repeats")], "needs 3 responses"),
    ("a majority vote over one response", {"filter_list": [pipeline("majority_vote", "take_first")]}, [("note", "repeats")], "only one response"),
    ("greedy repeats", {"repeats": 4}, [("warning", "repeats")], "all 4 `repeats`"),
    ("a temperature without sampling", {"generation_kwargs": {"do_sample": False, "temperature": 0.7}}, [("note", "sampling")], "no effect with `do_sample: false`"),
    ("sampling without temperature", {"generation_kwargs": {"do_sample": True, "temperature": 0}}, [("note", "sampling")], "no effect with `temperature: 0`"),
    ("a stop string that is not a string", {"generation_kwargs": {"until": [5]}}, [("error", "key")], "a string or a list of strings"),
    ("an empty stop string", {"generation_kwargs": {"until": ["", "\n"]}}, [("note", "until")], "has no effect"),
    ("a token limit of 0", {"generation_kwargs": {"max_gen_toks": 0}}, [("error", "key"), ("warning", "max-tokens")], "a positive integer"),
    ("a correct dialogue", {**MULTI_ROUND}, [], ""),
    ("a dialogue without process_results", {**MULTI_ROUND, "process_results": None}, [("warning", "rounds")], "the list of all rounds"),
    ("a dialogue without a helper", {**MULTI_ROUND, "doc_to_text": "{{question}}"}, [("error", "rounds")], "needs a function as `doc_to_text`"),
    ("a dialogue function without round arguments", {**MULTI_ROUND, "doc_to_text": Function("utils.one")}, [("error", "rounds")], "does not accept the previous rounds"),
    ("a message function without round arguments", {**MULTI_ROUND, "doc_to_messages": Function("utils.said")}, [("warning", "rounds")], "only one round"),
    ("an unknown solver", {**AGENT, "solver": "raect"}, [("error", "agent")], "did you mean `react`?"),
    ("an unknown option of a sandbox", {**AGENT, "environment": {"class": "sandbox", "tols": ["bash"]}}, [("error", "agent")], "did you mean `tools`?"),
    ("a correct agent", {**AGENT, "environment": {"class": "sandbox", "limits": {"time_s": 5}}}, [], ""),
    ("a correct agentic task", {**AGENTIC}, [], ""),
    ("an agentic task with 0 steps", {**AGENTIC, "generation_kwargs": {"max_agentic_steps": 0}}, [("error", "key")], "positive integer"),
    ("steps of a task that is not agentic", {"generation_kwargs": {"max_agentic_steps": 3}}, [("note", "no-effect")], "only agentic tasks"),
    ("a visual chain-of-thought task", {"output_type": "generate_visual_cot", "generation_kwargs": {"visual_cot": True}}, [], ""),
    ("two token limits", {"generation_kwargs": {"max_gen_toks": 8, "max_new_tokens": 9}}, [("note", "max-tokens")], "several token limits"),
    ("a misspelt setting", {"generation_kwargs": {"max_gen_tokens": 8}}, [("warning", "setting")], "did you mean"),
    ("a written line end in `until`", {"generation_kwargs": {"until": [r"\n"]}}, [("warning", "written-line-end")], "backslash"),
    ("a written line end in a delimiter", {"fewshot_delimiter": r"\n\n"}, [("warning", "written-line-end")], "`fewshot_delimiter`"),
    ("a written line end in a question", {"doc_to_text": r"{{question}}\nAnswer:"}, [("warning", "written-line-end")], "`doc_to_text`"),
    ("a line end written for Jinja", {"doc_to_text": r"{{question.split('\n')[0]}}"}, [], ""),
    ("a formula", {"doc_to_text": r"{{question}} Is $a \neq b$, $\nabla f$?"}, [], ""),
    ("an invalid template", {"doc_to_text": "{{question"}, [("error", "template")], "invalid template"),
    ("a template without its column", {"doc_to_text": "{{qestion}}"}, [("error", "document")], "uses `qestion`, which the document does not have"),
    ("a column in a branch not taken", {"doc_to_text": "{% if false %}{{hint}}{% endif %}{{question}}"}, [("warning", "column")], "`hint`"),
    ("a column tested with `is defined`", {"doc_to_text": "{{question}}{% if hint is defined %}{{hint}}{% endif %}"}, [], ""),
    ("a word that is almost a column", {"doc_to_target": "anser"}, [("warning", "column")], "the constant text `anser`"),
    ("a missing data file", {"dataset_kwargs": {"data_files": {"test": "gone.jsonl"}}}, [("error", "data")], "data file not found"),
    ("a missing split", {"test_split": "tset"}, [("error", "split")], "no split `tset`"),
    ("a missing split that is not needed", {"training_split": "train"}, [("warning", "split")], "no split `train`"),
    ("an unavailable dataset", {"dataset_path": "nobody/nothing", "dataset_kwargs": None}, [("note", "not-checked")], "is not available"),
    ("a stop string in the target", {"rows": TWO_LINES, "generation_kwargs": {"until": ["\n"]}}, [("warning", "cut-answer")], "truncates the answer: document 0"),
    ("a stop string that begins the target", {"generation_kwargs": {"until": ["1"]}, "rows": [{"question": "?", "answer": "12"}]}, [("warning", "cut-answer")], "always empty"),
    ("the default stop string in the target", {"fewshot_delimiter": "\n", "rows": TWO_LINES}, [("warning", "cut-answer")], "set `until`"),
    ("an answer that is too long", {"rows": TEN_WORDS, "generation_kwargs": {"max_gen_toks": 5}}, [("warning", "max-tokens")], "longer than `max_gen_toks: 5`"),
    ("no documents", {"rows": [], "doc_to_target": "x"}, [("error", "split")], "no documents"),
    ("a target that is no answer", {"metadata": {"target_is_answer": False}}, [("note", "target-not-an-answer")], "not a complete answer"),
    ("code that is executed", {"unsafe_code": True}, [("note", "unsafe-code")], "executes code"),
    ("examples from the test split", {"num_fewshot": 2, "fewshot_split": "test"}, [("warning", "fewshot-leak")], "answers may leak"),
    ("examples from the test split, if asked for", {"fewshot_split": "test"}, [("note", "fewshot-leak")], "leak"),
    ("a document as its own example", {"test_split": None, "validation_split": "test", "num_fewshot": 1, "fewshot_split": "test"}, [("warning", "fewshot-leak")], "its own example"),
    ("too few examples", {"num_fewshot": 3, "fewshot_config": {"samples": ROWS[:2]}}, [("error", "fewshot")], "only 2 examples are available"),
    ("examples that are evaluated too", {"num_fewshot": 1, "fewshot_config": {"samples": [{"id": 7, **ROWS[3]}]}}, [("warning", "fewshot-leak")], "the first is document 3"),
    ("an unknown sampler", {"num_fewshot": 1, "fewshot_config": {"sampler": "frist_n", "samples": [{"question": "?", "answer": "!"}]}}, [("error", "fewshot"), ("error", "document")], "did you mean `first_n`"),
    ("examples that are not rows", {"fewshot_config": {"samples": "many"}}, [("error", "fewshot")], "a list of mappings"),
    ("few-shot settings that lmms-eval ignores", {"dialect": "lmms_eval", "fewshot_config": {"sampler": "first_n", "doc_to_text": "x", "gen_prefix": "y"}}, [("warning", "no-effect"), ("warning", "no-effect")], "lmms-eval ignores `doc_to_text`"),
    ("examples that a split replaces", {"fewshot_split": "test", "fewshot_config": {"samples": ROWS[:2]}}, [("warning", "no-effect"), ("note", "fewshot-leak")], "`fewshot_split` takes precedence"),
    ("an aggregation that lmms-eval does not need", {"dialect": "lmms_eval", "process_results": Function("utils.two"), "metric_list": metric(aggregation="mean_last30")}, [("warning", "scoring")], "no aggregation is called `mean_last30`"),
    ("an unknown key of few-shot settings", {"fewshot_config": {"smaples": []}}, [("error", "key")], "did you mean `samples`"),
    ("an example without its column", {"num_fewshot": 1, "fewshot_config": {"samples": [{"question": "?", "anser": "!"}], "doc_to_target": "{{answer}}"}}, [("warning", "column"), ("error", "document")], "which is not a column"),
    ("a missing media file", {"doc_to_image": "picture", "rows": [{"question": "?", "answer": "!", "picture": "gone.png"}]}, [("error", "media")], "media file not found: `gone.png`"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "expected", "part"), [case[1:] for case in GENERATING], ids=[case[0] for case in GENERATING])  # fmt: skip
def test_findings_of_a_generation_task(
    tmp_path: Path, keys: dict[str, Any], expected: list[tuple[str, str]], part: str
) -> None:
    keys = dict(keys)
    write_task(tmp_path, rows=keys.pop("rows", ROWS), helpers=HELPERS, **keys)
    found = collect_findings(tmp_path)
    assert list_kinds(found) == expected, found
    assert any(part in f"{finding.what} {finding.hint}" for finding in found) or not expected
    assert all(finding.where.startswith(str(tmp_path)) for finding in found)


CHOICES: list[tuple[str, dict[str, Any], list[tuple[str, str]], str]] = [
    ("a correct task", {}, [], ""),
    ("no choices", {"doc_to_choice": None}, [("error", "key")], "needs `doc_to_choice`"),
    ("an index outside", {"doc_to_target": 2}, [("error", "target-not-a-choice")], "target 2, choices ['no', 'yes']"),
    ("a text that is not a choice", {"doc_to_target": "maybe"}, [("error", "target-not-a-choice")], "'maybe'"),
    ("a text that is a choice for some documents", {"doc_to_target": "{{'yes' if answer else 'never'}}"}, [("warning", "target-not-a-choice")], "documents 1, 3"),
    ("a choice twice", {"doc_to_choice": ["no", "no", "yes"]}, [("warning", "repeated-choice")], "duplicate choice"),
    ("choices that look like templates", {"doc_to_choice": ["{{no}}", "{{yes}}"]}, [("warning", "choice-not-a-template")], "used literally"),
    ("one choice", {"doc_to_choice": ["no"], "doc_to_target": 0}, [("warning", "one-choice")], "only one"),
    ("choices of a wrong type", {"doc_to_choice": 5}, [("error", "key"), ("error", "document")], "must be a list"),
    ("a metric it never reports", {"metric_list": metric("bleu", aggregation="bleu")}, [("error", "metric-fit")], "never reports `bleu`"),
    ("a pair with a mean", {"metric_list": metric("f1")}, [("error", "metric-fit")], "is a pair"),
    ("two spaces", {"doc_to_choice": [" no", " yes"]}, [("note", "spaces")], "contains both"),
    ("no space", {"target_delimiter": ""}, [("note", "spaces")], "no space separates"),
    ("settings for generation", {"generation_kwargs": {"until": ["\n"]}}, [("note", "no-effect")], "generates no text"),
    ("repeats", {"repeats": 2}, [("note", "repeats")], "the same each time"),
    ("an empty prompt", {"doc_to_text": ""}, [("note", "empty-prompt")], "empty"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "expected", "part"), [case[1:] for case in CHOICES], ids=[case[0] for case in CHOICES])  # fmt: skip
def test_findings_of_a_multiple_choice_task(
    tmp_path: Path, keys: dict[str, Any], expected: list[tuple[str, str]], part: str
) -> None:
    write_choices(tmp_path, **keys)
    found = collect_findings(tmp_path)
    assert list_kinds(found) == expected, found
    assert any(part in f"{finding.what} {finding.hint}" for finding in found) or not expected


def test_a_perplexity_task_needs_no_prompt(tmp_path: Path) -> None:
    write_texts(tmp_path)
    assert collect_findings(tmp_path) == []


def test_built_in_tasks_have_no_findings() -> None:
    notes = {"not-checked", "target-not-an-answer", "unsafe-code"}  # unavailable data; HumanEval and MBPP
    found = [one for one in collect_findings(builtin_root()) if one.kind not in notes]
    assert [one for one in found if one.where != "TAU_BENCH"] == []  # a checkout that its tasks need


# --- several things at once ----------------------------------------------------------------------------


def test_all_problems_of_a_file_are_reported(tmp_path: Path) -> None:
    path = write_task(
        tmp_path,
        helpers=HELPERS,
        doc_to_txt="x",
        num_fewshot="many",
        metric_list=metric("exact_macth"),
        filter_list=[pipeline("take_frist")],
        generation_kwargs={"until": [r"\n"]},
        doc_to_text="{{question",
        process_results=None,
        description=Function("utils.onee"),
    )
    found = collect_findings(tmp_path)
    assert {kind for _, kind in list_kinds(found)} == {
        "key",
        "template",
        "function",
        "scoring",
        "written-line-end",
    }
    assert [finding.kind for finding in found].count("key") == 2
    lines = path.read_text("utf-8").splitlines()
    place = next(finding.where for finding in found if "doc_to_txt" in finding.what)
    assert place == f"{path}:{lines.index('doc_to_txt: x') + 1}, doc_to_txt"


def test_invalid_yaml_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("task: bad\ndoc_to_text: [\n")
    (found,) = collect_findings(tmp_path, "bad")
    assert (found.severity, found.kind) == ("error", "yaml")
    assert found.where.startswith(f"{tmp_path / 'bad.yaml'}:")


@pytest.mark.parametrize("line", ["test_split: test", "metric_list: [{metric: acc, metric: exact_match}]"])
def test_duplicate_key_is_reported(tmp_path: Path, line: str) -> None:
    path = write_task(tmp_path, metric_list=None)
    path.write_text(f"{path.read_text('utf-8')}{line}\n")
    (found,) = collect_findings(tmp_path)
    assert (found.severity, found.kind) == ("warning", "repeated-key")
    assert found.where.startswith(f"{path}:{len(path.read_text('utf-8').splitlines())}")


def test_no_data_skips_the_dataset(tmp_path: Path) -> None:
    write_task(tmp_path, dataset_kwargs={"data_files": {"test": "gone.jsonl"}}, doc_to_text="{{qestion}}")
    assert collect_findings(tmp_path, data=False) == []


def test_duplicate_task_name_is_reported(tmp_path: Path) -> None:
    write_task(tmp_path / "a")
    write_task(tmp_path / "b")
    assert list_kinds(collect_findings(tmp_path)) == [("warning", "defined-twice")]


def test_name_in_two_task_collections_is_only_a_note(tmp_path: Path) -> None:
    root = tmp_path / "lmms_eval" / "tasks"
    write_task(root, "quickstart_copy")
    index = TaskIndex.build([builtin_root(), root])
    (subject,) = check_tasks(["quickstart_copy"], index, CheckOptions()).subjects
    assert list_kinds(subject.findings) == [("note", "defined-twice")]
    assert subject.findings[0].hint == "`assay/quickstart_copy` selects the other one"


@pytest.mark.parametrize(
    ("helpers", "kind"),
    [
        ("import no_such_package_anywhere\ndef one(doc): return 'x'", "package"),
        ("raise RuntimeError('no')", "function"),
        ("def one(doc) return", "function"),
        ("import sys; sys.exit('install me first')", "function"),
    ],
    ids=["a missing package", "an exception", "a syntax error", "an exit"],
)
@pytest.mark.parametrize("processes", [1, 2])
def test_broken_helper_affects_only_its_task(tmp_path: Path, helpers: str, kind: str, processes: int) -> None:
    keys: dict[str, Any] = {"doc_to_text": Function("utils.one"), "doc_to_target": Function("utils.two")}
    write_task(tmp_path / "bad", "bad", helpers=helpers, **keys)
    write_task(tmp_path / "good", "good", doc_to_txt="x")
    assert list_kinds(collect_findings(tmp_path, processes=processes)) == [("error", kind), ("error", "key")]


def test_crashing_helper_affects_only_its_task(tmp_path: Path) -> None:
    write_task(tmp_path / "bad", "bad", helpers="import os; os._exit(9)", doc_to_text=Function("utils.one"))
    write_task(tmp_path / "good", "good", doc_to_txt="x")
    found = collect_findings(tmp_path, processes=2)
    assert list_kinds(found) == [("error", "function"), ("error", "key")]
    assert "the process crashed" in found[0].what


def test_helper_file_is_imported_once(tmp_path: Path) -> None:
    counter = tmp_path / "count"
    helpers = f"from pathlib import Path\npath = Path({str(counter)!r})\n"
    helpers += "path.write_text(path.read_text() + 'x' if path.exists() else 'x')\nraise ValueError('no')\n"
    for name in ("a", "b", "c"):
        write_task(tmp_path, name, helpers=helpers, doc_to_text=Function("utils.one"))
    assert len(collect_findings(tmp_path)) == 3
    assert counter.read_text() == "x"


def test_output_of_helpers_is_suppressed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    helpers = (
        "import sys\nprint('hello')\nprint('there', file=sys.stderr)\ndef one(doc): print('!'); return 'x'"
    )
    write_task(tmp_path, helpers=helpers, doc_to_text=Function("utils.one"))
    assert collect_findings(tmp_path) == []
    assert capsys.readouterr() == ("", "")


# --- the list of checks --------------------------------------------------------------------------------

TESTED_SEPARATELY = {"variant", "cluster", "yaml", "repeated-key", "defined-twice", "name", "check"}
"""Kinds with their own tests."""


def test_every_kind_has_a_case() -> None:
    cases = {kind for case in (*GENERATING, *CHOICES, *GROUPS) for _, kind in case[2]}
    assert cases | TESTED_SEPARATELY == set(FINDING_KINDS)


def test_the_guide_lists_every_kind() -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "checking-tasks.md"
    rows = [line for line in guide.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert rows == [f"| `{kind}` | {meaning} |" for kind, meaning in FINDING_KINDS.items()]
