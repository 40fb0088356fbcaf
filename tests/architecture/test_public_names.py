"""The names people import. Taking one away is a breaking change; adding one is a promise."""

from __future__ import annotations

import pytest

import assay

PUBLIC = {
    "AssayError",
    "Audio",
    "Document",
    "Estimate",
    "Evidence",
    "Failure",
    "FunctionModel",
    "Generate",
    "GroupSpec",
    "Image",
    "Likelihood",
    "LogProbability",
    "Message",
    "Model",
    "Plan",
    "Prompt",
    "Response",
    "RollingLikelihood",
    "Run",
    "RunSpec",
    "Score",
    "Settings",
    "Task",
    "TaskSpec",
    "Text",
    "Traits",
    "Unscored",
    "Video",
    "compare",
    "open_run",
    "plan",
    "resume",
    "run",
}


def test_the_public_names_are_these() -> None:
    assert set(assay.__all__) == PUBLIC
    assert len(assay.__all__) == len(PUBLIC)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_is_there_and_says_what_it_is(name: str) -> None:
    assert getattr(assay, name).__doc__


def test_dir_lists_the_public_names() -> None:
    assert set(dir(assay)) >= PUBLIC


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    name = "no_such_name"
    with pytest.raises(AttributeError, match=name):
        getattr(assay, name)


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert assay.__version__ == version("assay-harness")
