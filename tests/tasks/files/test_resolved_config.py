"""`assay show TASK --yaml`: the configuration after includes, groups and flags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from assay.cli.app import run_command_line


@pytest.fixture
def group(workspace: Path) -> str:
    """A group that overrides a key of a task, which includes another file."""
    (workspace / "base.yaml").write_text(
        "dataset_path: json\ndataset_kwargs: {data_files: {test: d.jsonl}}\ntest_split: test\n"
        "doc_to_text: !function helpers.text\ndoc_to_target: answer\n"
        'generation_kwargs: {until: ["\\n"], max_gen_toks: 5}\nmetric_list: [{metric: exact_match}]\n',
        "utf-8",
    )
    (workspace / "sums.yaml").write_text("include: base.yaml\ntask: sums\ndoc_to_target: sum\n", "utf-8")
    (workspace / "both.yaml").write_text("group: both\ntask:\n  - task: sums\n    num_fewshot: 3\n", "utf-8")
    (workspace / "helpers.py").write_text("def text(doc):\n    return doc['question']\n", "utf-8")
    return "both"


def test_every_key_has_its_source(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["show", group, "--yaml", "--include_path", ".", "--gen_kwargs", "temperature=0.5"]
    assert run_command_line(words) == 0
    out = capsys.readouterr().out
    assert "doc_to_target: sum  # sums.yaml:3\n" in out
    assert "doc_to_text: !function 'helpers.text'  # base.yaml:4\n" in out
    assert "num_fewshot: 3  # both.yaml:4\n" in out
    assert '# base.yaml:6, changed by --gen_kwargs\ngeneration_kwargs:\n  until:\n  - "\\n"\n' in out
    loaded = yaml.load(out.replace("!function", ""), Loader=yaml.SafeLoader)
    assert loaded["generation_kwargs"] == {"until": ["\n"], "max_gen_toks": 5, "temperature": 0.5}
    assert loaded["test_split"] == "test"


def test_flags_take_precedence_and_json_has_the_same_content(
    group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["show", group, "--yaml", "--json", "--include_path", ".", "--num_fewshot", "1"]
    assert run_command_line(words) == 0
    (config,) = json.loads(capsys.readouterr().out).values()
    assert config["num_fewshot"] == {"value": 1, "source": "--num_fewshot"}
    assert config["doc_to_text"]["value"] == "!function helpers.text"
    assert config["doc_to_target"] == {"value": "sum", "source": "sums.yaml:3"}
