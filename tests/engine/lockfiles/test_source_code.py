"""Which code and packages a metric uses."""

from __future__ import annotations

import pytest

from assay.engine.lockfiles.source_code import list_imports, trace_module, trace_objects
from assay.scoring.filters import FILTERS
from assay.scoring.metrics import METRICS
from assay.stats.aggregations import AGGREGATIONS


def test_packages_are_found_through_the_functions_that_a_metric_calls() -> None:
    assert "sacrebleu" in trace_objects([AGGREGATIONS.get("bleu")]).packages
    assert "sacrebleu" not in trace_objects([METRICS.get("exact_match").function]).packages


def test_the_digest_depends_on_the_functions_and_not_on_their_order_in_a_call() -> None:
    metrics = [METRICS.get(name).function for name in ("exact_match", "anls")]
    assert trace_objects(metrics).digest == trace_objects(metrics[::-1]).digest
    assert len({trace_objects([one]).digest for one in metrics}) == 2


def test_a_function_that_another_one_calls_is_part_of_its_digest(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    import assay.engine.lockfiles as package

    digests = []
    for number, body in enumerate(("return 1", "return 2", "return 1")):
        folder = tmp_path_factory.mktemp("code")
        (folder / f"traced_{number}.py").write_text(
            f"import numpy\n\ndef helper():\n    {body}\n\ndef other():\n    return {number}\n\ndef metric():\n    return helper()\n"
        )
        monkeypatch.setattr(package, "__path__", [str(folder)])
        metric = type(
            "Made", (), {"__module__": f"assay.engine.lockfiles.traced_{number}", "__qualname__": "metric"}
        )
        trace = trace_objects([metric])
        assert (
            trace.packages == frozenset()
        )  # `numpy` is imported by the module, but not used by the function
        digests.append(trace.digest)
    assert digests[0] != digests[1]


def test_filters_and_models_are_traced() -> None:
    assert trace_objects([FILTERS.get("regex")]).packages == frozenset()
    assert {"numpy", "safetensors"} <= trace_module("assay.models.embedded.adapter").packages
    assert trace_module("my_plugin.adapter").packages == {"my_plugin"}


def test_imports_of_a_helper_file() -> None:
    source = "import os, lm_eval.api\nfrom sklearn import metrics\ndef f():\n    import nltk.tokenize as t\n"
    assert list_imports(source) == {"sklearn", "nltk"}
    assert list_imports("from importlib import import_module\nimport_module('zss.x')\n") == {"zss"}
    assert list_imports("def broken(:") == set()
