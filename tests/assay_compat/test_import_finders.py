"""Import shims for helper files: `lm_eval.*` and `lmms_eval.*` without the packages, `evaluate`, `transformers`."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest

from assay.core.errors import MissingPackage
from assay.core.registry import Registry
from assay.scoring.filters import FILTERS
from assay.scoring.metrics import METRICS
from assay.stats.aggregations import AGGREGATIONS
from assay.tasks.files.helper_functions import HelperFunction, compatibility_layers, load_module
from assay_compat.import_finders import ThirdPartyFinder, patch_evaluate

HELD = ("evaluate", "transformers")


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    """Foreign imports work; what a test imported is forgotten."""
    compatibility_layers()
    known = dict(sys.modules)
    yield
    for name in set(sys.modules) - set(known):
        if name.startswith(("lm_eval", "lmms_eval", *HELD)):
            del sys.modules[name]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if neither `evaluate` nor `transformers` were installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] in HELD]:
        monkeypatch.delitem(sys.modules, name)
    real = importlib.machinery.PathFinder.find_spec

    def find(name: str, *arguments: object, **keywords: object) -> object:
        return None if name.partition(".")[0] in HELD else real(name, *arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(importlib.machinery.PathFinder, "find_spec", find)


def helper(folder: Path, code: str, name: str = "utils.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(dedent(code), "utf-8")
    return folder / name


def test_imports_of_published_lm_eval_tasks_work(tmp_path: Path) -> None:
    module = load_module(
        helper(
            tmp_path,
            """
            from lm_eval.api.filter import Filter
            from lm_eval.api.instance import Instance
            from lm_eval.api.metrics import mean, metric_max_over_ground_truths
            from lm_eval.api.registry import register_filter
            from lm_eval.api.task import ConfigurableTask, Task
            from lm_eval.filters.extraction import Filter as SameFilter, RegexFilter
            from lm_eval.utils import general_detokenize, weighted_f1_score
            import lm_eval.utils as utils
            """,
        )
    )
    assert module.mean([1.0, 0.0]) == 0.5
    assert module.metric_max_over_ground_truths(lambda given, wanted: given + wanted, 1, [1, 5]) == 6
    assert module.general_detokenize("it 's ( fine ) .") == "it's (fine)."
    assert module.weighted_f1_score([(0, 0), (1, 0), (1, 1)]) == pytest.approx(2 / 3)
    assert module.Filter is module.SameFilter
    instance = module.Instance("generate_until", {}, ("a", {}), 0, metadata=("task", 3, 1))
    assert (instance.task_name, instance.doc_id, instance.repeats, instance.args) == ("task", 3, 1, ("a", {}))


def test_imports_of_lmms_eval_tasks_work(tmp_path: Path) -> None:
    module = load_module(
        helper(
            tmp_path,
            """
            from lmms_eval import utils as lmms_utils
            from lmms_eval.api.filter import Filter
            from lmms_eval.api.instance import Instance
            from lmms_eval.api.metrics import anls, levenshtein_distance
            from lmms_eval.api.reasoning import strip_reasoning_tags
            from lmms_eval.api.registry import register_filter
            from lmms_eval.api.task import ConfigurableTask
            from lmms_eval.filters import Filter as SameFilter
            from lmms_eval.filters.extraction import ExtendedRegexFilter, MultiChoiceRegexFilter, RegexFilter
            from lmms_eval.filters.selection import TakeFirstFilter
            from lmms_eval.filters.transformation import MapFilter
            from lmms_eval.loggers.evaluation_tracker import GeneralConfigTracker
            from lmms_eval.utils import eval_logger, resolve_cache_dir, sanitize_model_name
            """,
        )
    )
    assert module.Filter is module.SameFilter
    assert module.anls(["Bern"], ["bern"]) == {"anls": 1.0}
    assert module.levenshtein_distance("kitten", "sitting") == 3
    assert module.strip_reasoning_tags("<a>x</a> y", [["<a>", "</a>"]]) == "y"
    assert module.GeneralConfigTracker._get_model_name("device=cpu,pretrained=a/b,x=1") == "a/b"
    assert module.GeneralConfigTracker._get_model_name("x=1") == ""
    assert module.sanitize_model_name("one/two/three:4") == "two__three__4"
    assert module.resolve_cache_dir("videos", base_dir="/data") == "/data/videos"
    assert module.resolve_cache_dir("/own", base_dir="/data") == "/own"
    assert module.MapFilter({"a": 1}, 0).apply([["a", "b"]], [{}]) == [[1, 0]]
    instance = module.Instance("generate_until", ("a",), 0, {"task": "t", "doc_id": 3, "repeats": 1})
    assert (instance.task_name, instance.doc_id, instance.args) == ("t", 3, ("a",))


def test_extended_filter_methods_are_available_to_subclasses(tmp_path: Path) -> None:
    module = load_module(
        helper(
            tmp_path,
            """
            import re
            from lmms_eval.filters.extraction import ExtendedRegexFilter

            class Mine(ExtendedRegexFilter):
                def apply(self, resps, docs):
                    search = re.compile(r"(yes)|(no)")
                    return [[self.find_match(search, self.filter_ignores(one), {"no": "N"}) for one in several]
                            for several in resps]
            """,
        )
    )
    mine = module.Mine(ignore_case=True, ignore_punctuation=True, regexes_to_ignore=["x"])
    assert mine.apply([["Yx-es", "NO", "?"]], [{}]) == [["yes", "N", []]]


@pytest.fixture
def restored_registries() -> Iterator[None]:
    """Restore the registries after the test."""
    registries: tuple[Registry[Any], ...] = (FILTERS, AGGREGATIONS, METRICS)
    for registry in registries:
        registry.names()  # load the built-in entries before the copy
    saved = [{name: copy(value) for name, value in vars(registry).items()} for registry in registries]
    yield
    for registry, state in zip(registries, saved, strict=True):
        vars(registry).update(state)


def test_registered_components_are_found_by_name(tmp_path: Path, restored_registries: None) -> None:
    load_module(
        helper(
            tmp_path,
            """
            from lm_eval.api.filter import Filter
            from lm_eval.api.registry import register_aggregation, register_filter, register_metric

            @register_filter("compat_shout")
            class Shout(Filter):
                def apply(self, resps, docs):
                    return [[text.upper() for text in texts] for texts in resps]

            @register_aggregation("compat_last")
            def last(items):
                return items[-1]

            @register_metric(metric="compat_long", higher_is_better=False, output_type="generate_until", aggregation="compat_last")
            def long(references, predictions, **kwargs):
                return len(predictions[0])
            """,
        )
    )
    assert FILTERS.get("compat_shout")().apply([["a"]], [{}]) == [["A"]]
    assert AGGREGATIONS.get("compat_last")([1, 2]) == 2
    metric = METRICS.get("compat_long")
    assert (metric.aggregation, metric.higher_is_better) == ("compat_last", False)


def test_a_task_tree_is_importable_under_its_own_name(tmp_path: Path) -> None:
    tree = tmp_path / "lm_eval" / "tasks"
    helper(tree / "a", "NUMBER = 5\n", "shared.py")
    path = helper(tree / "b", "from lm_eval.tasks.a.shared import NUMBER\nfrom .near import WORD\n")
    helper(tree / "b", "WORD = 'near'\n", "near.py")
    module = load_module(path)
    assert (module.__name__, module.NUMBER, module.WORD) == ("lm_eval.tasks.b.utils", 5, "near")


def test_full_module_name_finds_its_task_tree(tmp_path: Path) -> None:
    tree = tmp_path / "lmms_eval" / "tasks"
    helper(tree / "far", "def question(doc): return 'far'\n", "asking.py")
    (tree / "near").mkdir()
    function = HelperFunction("lmms_eval.tasks.far.asking.question", tree / "near", "t.yaml:1")
    assert function({}) == "far"


def test_unknown_import_is_a_missing_package(tmp_path: Path) -> None:
    helper(tmp_path, "from lm_eval.models.huggingface import HFLM\n\ndef question(doc): ...\n")
    with pytest.raises(MissingPackage, match="lm_eval"):
        HelperFunction("utils.question", tmp_path, "t.yaml:1").load()


def test_unknown_harness_module_is_reported(tmp_path: Path) -> None:
    helper(tmp_path, "from lmms_eval.azure_openai_compat import build_client\n\ndef question(doc): ...\n")
    with pytest.raises(
        MissingPackage, match=r"for `lmms_eval\.azure_openai_compat`, needs the package `lmms_eval`"
    ):
        HelperFunction("utils.question", tmp_path, "t.yaml:1").load()


def test_name_that_only_the_package_has_is_reported(tmp_path: Path) -> None:
    helper(tmp_path, "from lm_eval.models.utils import configure_pad_token\n\ndef question(doc): ...\n")
    with pytest.raises(
        MissingPackage,
        match=r"for `configure_pad_token` of `lm_eval\.models\.utils`, needs the package `lm_eval`",
    ):
        HelperFunction("utils.question", tmp_path, "t.yaml:1").load()


# --- evaluate ---------------------------------------------------------------------------------------


def test_evaluate_load_uses_assay_metrics_first() -> None:
    module = ModuleType("evaluate")
    module.load = lambda *given, **more: ("real", given, more)  # type: ignore[attr-defined]
    patch_evaluate(module)
    patch_evaluate(module)
    assert module.load("exact_match").compute(predictions=["a"], references=["a"]) == {"exact_match": 1.0}
    assert module.load("mine", "config", module_type="metric") == (
        "real",
        ("mine", "config"),
        {"module_type": "metric"},
    )


@pytest.mark.usefixtures("without")
def test_evaluate_shim_without_the_package() -> None:
    evaluate = importlib.import_module("evaluate")
    assert evaluate.load("wer", module_type="metric").compute(predictions=["a"], references=["b"]) == 1.0
    with pytest.raises(ModuleNotFoundError, match="does not implement the metric `mine`"):
        evaluate.load("mine")
    with pytest.raises(ModuleNotFoundError, match=r"evaluate\.evaluator"):
        evaluate.evaluator  # noqa: B018


# --- transformers -----------------------------------------------------------------------------------

SQUAD = """
import transformers.data.metrics.squad_metrics as squad_metrics
from transformers.data.metrics import squad_metrics as again

def best(wanted, given):
    return squad_metrics.compute_f1(wanted, given), again.compute_exact(wanted, given)
"""


@pytest.mark.usefixtures("without")
def test_squad_functions_without_transformers(tmp_path: Path) -> None:
    module = load_module(helper(tmp_path, SQUAD))
    assert module.best("the cat", "cat") == (1.0, 1)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("transformers")


@pytest.mark.usefixtures("without")
def test_other_names_of_transformers_are_missing(tmp_path: Path) -> None:
    helper(tmp_path, SQUAD + "\nfrom transformers import AutoTokenizer\n")
    with pytest.raises(MissingPackage, match="transformers"):
        HelperFunction("utils.best", tmp_path, "t.yaml:1").load()


@pytest.mark.torch
def test_squad_functions_with_transformers(tmp_path: Path) -> None:
    assert load_module(helper(tmp_path, SQUAD)).best("x y", "y z") == (0.5, 0)
    assert importlib.import_module("transformers").__file__


def test_shim_is_loaded_only_for_helpers_that_use_it(tmp_path: Path) -> None:
    finder = ThirdPartyFinder(tmp_path)
    with finder.loading(helper(tmp_path, "import json\n")):
        assert finder.find_spec("transformers") is None
    assert finder.find_spec("json") is None


# --- datasets ---------------------------------------------------------------------------------------

LOAD_METRIC = "from datasets import load_metric\n\ndef f1(): return load_metric('squad_v2').name\n"


def test_load_metric_of_older_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = ModuleType("datasets")
    monkeypatch.setitem(sys.modules, "datasets", datasets)
    load_module(helper(tmp_path, "import datasets\n"))
    assert not hasattr(datasets, "load_metric")
    assert load_module(helper(tmp_path, LOAD_METRIC)).f1() == "squad_v2"
    datasets.load_metric = own = lambda name: None  # type: ignore[attr-defined]
    load_module(helper(tmp_path, LOAD_METRIC + "# changed\n"))
    assert datasets.load_metric is own, "an older version has its own"


def test_load_metric_without_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    helper(tmp_path, LOAD_METRIC)
    with pytest.raises(MissingPackage, match="datasets"):
        HelperFunction("utils.f1", tmp_path, "t.yaml:1").load()


def test_import_of_assay_loads_no_shims() -> None:
    code = "import assay, sys; print([name for name in sys.modules if name.startswith(('lm_eval', 'assay_compat', 'evaluate'))])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["lm_eval.api.model", "lmms_eval.api.model", "lmms_eval.protocol"])
def test_base_classes_come_from_the_installed_package(tmp_path: Path, name: str) -> None:
    file = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
    helper(file.parent, "IS_INSTALLED = True", file.name)
    helper(tmp_path / name.partition(".")[0], "", "__init__.py")
    code = f"""
        import sys
        sys.path.append({str(tmp_path)!r})
        from assay.tasks.files.helper_functions import compatibility_layers
        compatibility_layers()
        import {name}
        print({name}.IS_INSTALLED)
    """
    shown = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "True"
