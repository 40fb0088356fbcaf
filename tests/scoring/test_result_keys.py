"""Metrics that a task lists but never reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.making import Function, make_model, write_choices, write_task

import assay
from assay.core.errors import AssayError
from assay.scoring.result_keys import find_result_keys
from assay.tasks.files.helper_functions import load_module


def load(tmp_path: Path, source: str) -> Any:
    path = tmp_path / "helper.py"
    path.write_text(source)
    return load_module(path).f


@pytest.mark.parametrize(
    ("source", "keys"),
    [
        pytest.param("def f(d, r):\n return {'a': 1, 'b': 2}", {"a", "b"}, id="dictionary"),
        pytest.param("def f(d, r):\n if r: return {'a': 1}\n return {'b': 2}", {"a", "b"}, id="two returns"),
        pytest.param(
            "def f(d, r):\n x = {}\n x['a'] = 1\n x.update(b=2)\n return x", {"a", "b"}, id="variable"
        ),
        pytest.param("def f(d, r):\n return dict(a=1, **{'b': 2})", {"a", "b"}, id="call of dict"),
        pytest.param("def g(r):\n return {'a': r}\ndef f(d, r):\n return g(r)", {"a"}, id="another function"),
        pytest.param(
            "def f(d, r):\n x = {'a': 1}\n x |= {'b': 2}\n return {**x, 'c': 3}", {"a", "b", "c"}, id="merged"
        ),
        pytest.param("def f(d, r):\n return {d['k']: 1}", None, id="computed key"),
        pytest.param("def f(d, r):\n return {k: 1 for k in r}", None, id="comprehension"),
        pytest.param("def f(d, r):\n x = {}\n r.fill(x)\n return x", None, id="changed elsewhere"),
        pytest.param("def f(d, r):\n x = {}\n x[d['k']] = 1\n return x", None, id="computed subscript"),
        pytest.param("def f(d, r):\n return r", None, id="parameter"),
        pytest.param(
            "import functools\n@functools.cache\ndef f(d, r):\n return {'a': 1}", None, id="decorated"
        ),
        pytest.param("def f(d, r):\n return f(d, r)", None, id="recursive"),
        pytest.param("f = lambda d, r: {'a': 1}", None, id="lambda"),
        pytest.param("def f(d, r):\n def g(): return {'z': 1}\n return {'a': g}", {"a"}, id="inner function"),
    ],
)
def test_keys_are_read_from_the_source(tmp_path: Path, source: str, keys: set[str] | None) -> None:
    found = find_result_keys(load(tmp_path, source))
    assert found == (None if keys is None else frozenset(keys))


def metric(name: str) -> dict[str, Any]:
    return {"metric": name, "aggregation": "mean", "higher_is_better": True}


def write(tmp_path: Path, source: str, *metrics: str) -> Path:
    return write_task(
        tmp_path,
        helpers=source,
        process_results=Function("utils.f"),
        metric_list=[metric(name) for name in metrics],
    )


def test_a_metric_that_is_never_returned_is_an_error_in_the_plan(tmp_path: Path) -> None:
    path = write(tmp_path, "def f(doc, results):\n    return {'acc': 1.0}\n", "acc", "f9")
    with pytest.raises(AssayError, match="never returns the metric `f9`") as caught:
        assay.plan(model=make_model(), tasks=[str(path)])
    assert "metric_list[1]" in str(caught.value.where) and caught.value.hint == "it returns: acc"
    assert assay.plan(model=make_model(), tasks=[str(path)], predict_only=True)


def test_a_metric_in_another_case_is_a_note(tmp_path: Path) -> None:
    path = write(tmp_path, "def f(doc, results):\n    return {'acc': 1.0, 'All': 1.0}\n", "acc", "ALL")
    assert any(
        "never returns the metric `ALL`" in note
        for note in assay.plan(model=make_model(), tasks=[str(path)]).notes
    )


def test_a_task_without_metrics_is_an_error_in_the_plan(tmp_path: Path) -> None:
    path = write_task(tmp_path, metric_list=[])
    with pytest.raises(AssayError, match="the task has no metric"):
        assay.plan(model=make_model(), tasks=[str(path)])


def test_a_metric_that_the_output_type_never_reports_is_an_error_in_the_plan(tmp_path: Path) -> None:
    path = write_choices(tmp_path, metric_list=[{"metric": "acc"}, {"metric": "bleu"}])
    with pytest.raises(AssayError, match="a multiple_choice task never reports `bleu`"):
        assay.plan(model=make_model(), tasks=[str(path)])


def test_a_registered_metric_of_choices_gets_pairs_of_target_and_answer(tmp_path: Path) -> None:
    (tmp_path / "utils.py").write_text(
        "from lm_eval.api.registry import register_aggregation, register_metric\n\n"
        "@register_metric(metric='share_of_first', higher_is_better=False, output_type='multiple_choice',"
        " aggregation='share')\n"
        "def passthrough(items):\n    return items\n\n"
        "@register_aggregation('share')\n"
        "def share(items):\n    return sum(gold == 1 and answer == 1 for gold, answer in items) / len(items)\n\n"
        "def keep(rows):\n    return rows\n"
    )
    path = write_choices(
        tmp_path,
        metric_list=[{"metric": "acc"}, {"metric": "share_of_first"}],
        process_docs=Function("utils.keep"),
    )
    run = assay.run(model="oracle", tasks=[str(path)], no_cache=True, output_path=str(tmp_path / "out"))
    assert run.results["choices"]["share_of_first,none"] == 0.5
    assert "share_of_first   ↓" in run.table()


def test_a_metric_without_a_value_has_a_row(tmp_path: Path) -> None:
    source = "def f(doc, results):\n    return {name: 1.0 for name in ['acc']}\n"
    path = write(tmp_path, source, "acc", "f9")
    run = assay.run(model=make_model(), tasks=[str(path)], no_cache=True, output_path=str(tmp_path / "out"))
    by_name = {estimate.metric: estimate for estimate in run.estimates}
    assert by_name["acc"].value == 1.0
    assert by_name["f9"].value is None and by_name["f9"].why == "no document returned this metric"
    assert "no value" in run.table()
    assert run.results["sums"]["f9,none"] is None


def test_task_code_that_returns_no_metric_is_an_error_in_the_plan(tmp_path: Path) -> None:
    source = "def f(doc, results):\n    return {}\n"
    path = write_task(tmp_path, metric_list=None, process_results=Function("utils.f"), helpers=source)
    with pytest.raises(AssayError, match="`process_results` returns no metric"):
        assay.plan(model=make_model(), tasks=[str(path)])


def test_task_code_without_a_list_of_metrics_replaces_the_default_metrics(tmp_path: Path) -> None:
    source = "def f(doc, results):\n    return {'right': 1.0}\n"
    path = write_task(tmp_path, metric_list=None, process_results=Function("utils.f"), helpers=source)
    run = assay.run(model=make_model(), tasks=[str(path)], no_cache=True, output_path=str(tmp_path / "out"))
    assert [estimate.metric for estimate in run.estimates] == ["right"]
    assert "no value" not in run.table()
