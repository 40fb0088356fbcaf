"""Tests of the dialects."""

from __future__ import annotations

from assay.core.dialects import Dialect
from assay.core.records.specs import GroupSpec, TaskSpec


def test_default_generation_settings() -> None:
    assert list(Dialect.LM_EVAL.default_generation(["\n"]).items()) == [
        ("temperature", 0.0),
        ("do_sample", False),
        ("max_gen_toks", 256),
        ("until", ["\n"]),
    ]
    assert Dialect.LMMS_EVAL.default_generation(["\n"]) == {"until": ["\n"], "do_sample": False}


def test_every_difference_is_one() -> None:
    names = [name for name, value in vars(Dialect).items() if isinstance(value, property)]
    assert len(names) > 10
    for name in names:
        assert getattr(Dialect.LM_EVAL, name) != getattr(Dialect.LMMS_EVAL, name), name


def test_specs_accept_the_yaml_name() -> None:
    name: str = "lmms_eval"
    assert TaskSpec(name="a", dialect=name).dialect is Dialect.LMMS_EVAL  # type: ignore[arg-type]
    assert GroupSpec(name="a", dialect=name).dialect is Dialect.LMMS_EVAL  # type: ignore[arg-type]


def test_names_of_lmms_eval_that_mean_something_else() -> None:
    assert Dialect.LMMS_EVAL.resolve_filter("remove_whitespace") == "remove_leading_space"
    assert Dialect.LMMS_EVAL.resolve_aggregation("median") == "middle"
    assert Dialect.LM_EVAL.resolve_filter("remove_whitespace") == "remove_whitespace"
    assert Dialect.LMMS_EVAL.default_direction("ter", False) is True
    assert Dialect.LM_EVAL.default_direction("ter", False) is False
