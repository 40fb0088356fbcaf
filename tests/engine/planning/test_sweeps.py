from __future__ import annotations

from pathlib import Path

import pytest

from assay.core.errors import AssayError
from assay.engine.planning.sweeps import Sweep, read_sweep

WHOLE = """
models:
  - embedded
  - {name: small, model: hf, model_args: {pretrained: ./small, dtype: float32}, batch_size: 8}
  - {model: hf, model_args: {pretrained: org/Large}}
tasks: [sums, facts]
settings:
  - num_fewshot: 0
  - {name: five, num_fewshot: 5, model_args: {revision: v2}, tasks: [sums]}
options: {limit: 100, num_fewshot: 3}
"""


def write_sweep(folder: Path, text: str, **given: object) -> Sweep:
    path = folder / "mine.yaml"
    path.write_text(text)
    return read_sweep(path, given)


def test_every_model_runs_with_every_setting(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path, WHOLE)
    assert sweep.name == "mine"
    assert [cell.name for cell in sweep.runs] == [
        "embedded, num_fewshot=0",
        "embedded, five",
        "small, num_fewshot=0",
        "small, five",
        "hf Large, num_fewshot=0",
        "hf Large, five",
    ]


def test_settings_override_models_and_models_override_options(tmp_path: Path) -> None:
    specs = {cell.name: cell.spec for cell in write_sweep(tmp_path, WHOLE).runs}
    assert {spec.num_fewshot for name, spec in specs.items() if name.endswith("five")} == {5}
    assert specs["small, num_fewshot=0"].num_fewshot == 0
    assert specs["small, five"].batch_size == 8 and specs["embedded, five"].batch_size == 1
    assert specs["small, five"].tasks == ["sums"] and specs["small, num_fewshot=0"].tasks == ["sums", "facts"]
    assert all(spec.limit == 100 for spec in specs.values())


def test_arguments_of_a_setting_are_merged_with_those_of_the_model(tmp_path: Path) -> None:
    cells = {cell.name: cell for cell in write_sweep(tmp_path, WHOLE).runs}
    joined = {"pretrained": "./small", "dtype": "float32", "revision": "v2"}
    assert cells["small, five"].spec.model_args == joined
    assert cells["small, num_fewshot=0"].spec.model_args == {"pretrained": "./small", "dtype": "float32"}


def test_flags_override_the_file(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path, WHOLE, limit=7, tasks=["facts"])
    assert {(cell.spec.limit, *cell.spec.tasks) for cell in sweep.runs} == {(7, "facts")}


def test_without_settings_there_is_one_run_for_each_model(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path, "models: [embedded, dummy]\n")
    assert [(cell.name, cell.setting, cell.spec.model) for cell in sweep.runs] == [
        ("embedded", "", "embedded"),
        ("dummy", "", "dummy"),
    ]


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        ("modles: [embedded]", "a sweep has no key `modles`", "mine.yaml"),
        ("tasks: [sums]", "a sweep needs models", "mine.yaml"),
        ("models: [embedded, embedded]", "two models are called `embedded`", "mine.yaml, models"),
        ("models: [{name: a}]", "the model is missing", "mine.yaml, models[0]"),
        ("models: [{model: hf, limits: 3}]", "no option is called `limits`", "mine.yaml, models[0]"),
        ("models: [3]", "expected keys and values, not 3", "mine.yaml, models[0]"),
        ("models: {a: b}", "`models` is not a list", "mine.yaml, models"),
        (
            "models: [embedded]\nsettings: [{output_path: x}]",
            "`output_path` is the same for all runs of a sweep",
            "mine.yaml, settings[0]",
        ),
        ("models: [embedded]\nsettings: [{limit: x}]", "`x` is not", "mine.yaml, embedded, limit=x: --limit"),
        ("models: [embedded]\noptions: [limit]", "expected keys and values", "mine.yaml, options"),
        ("models: [", "the sweep is not valid YAML", "mine.yaml:1:10"),
        ("- embedded", "expected keys and values", "mine.yaml"),
    ],
)
def test_an_invalid_file_is_an_error_with_its_location(
    tmp_path: Path, text: str, what: str, where: str
) -> None:
    with pytest.raises(AssayError) as caught:
        write_sweep(tmp_path, text)
    assert what in caught.value.what
    assert caught.value.where.endswith(where)
    assert caught.value.exit_code == 2


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="cannot read the sweep"):
        read_sweep(tmp_path / "none.yaml")
