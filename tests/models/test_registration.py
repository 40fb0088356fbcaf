"""Built-in models are registered once, in the package that holds them."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import get_args

import pytest

from assay.core.errors import InvalidOption, UnknownName
from assay.core.installation import format_plugin_install_command
from assay.core.ports import Ability
from assay.models import BUILTIN_MODELS, MODELS, find_models_with, make_model


def test_every_built_in_model_is_inside_the_package() -> None:
    for model in BUILTIN_MODELS:
        module, _, attribute = model.target.partition(":")
        assert module.startswith("assay.models.") and attribute
        assert find_spec(module) is not None, model.target


def test_every_name_is_registered() -> None:
    names = [name for model in BUILTIN_MODELS for name in model.names]
    assert len(set(names)) == len(names)
    assert set(names) <= set(MODELS.names())


def test_every_adapter_package_has_abilities_except_the_test_models() -> None:
    def package(target: str) -> str:
        return target.split(".")[2].partition(":")[0]

    recommended = {package(model.target) for model in BUILTIN_MODELS if model.abilities}
    assert {package(model.target) for model in BUILTIN_MODELS} - recommended == {"dummy", "oracle"}
    for model in BUILTIN_MODELS:
        assert model.needs <= model.abilities <= set(get_args(Ability))


def test_hints_name_models_in_the_order_of_registration() -> None:
    assert find_models_with(["likelihood", "image"]) == ["embedded", "hf", "vllm", "human"]
    assert find_models_with(["generate"])[0] == "embedded"


def test_the_engine_registers_its_own_model() -> None:
    script = (
        "from assay.models import MODELS\n"
        "assert 'replay' not in MODELS\n"
        "import assay.engine\n"
        "assert MODELS.get('replay').__module__.startswith('assay.engine.')"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_unknown_model_is_an_error() -> None:
    with pytest.raises(UnknownName, match="embeded"):
        make_model("embeded", {})


def test_an_unknown_argument_is_an_error() -> None:
    with pytest.raises(InvalidOption, match="`dummy`"):
        make_model("dummy", {"temperature": 1})


def test_a_run_option_that_the_model_does_not_support_is_an_error() -> None:
    with pytest.raises(InvalidOption, match="no batch API"):
        make_model("dummy", {}, batch_api=True)
    with pytest.raises(InvalidOption, match="no chat template"):
        make_model("dummy", {}, chat_template="named")


def test_a_model_receives_only_the_run_options_it_has_parameters_for() -> None:
    assert make_model("dummy", {"seed": 3}, batch_size=4, device=None).name == "dummy"


WITHOUT_PLUGINS = """
import sys
from assay.core import registry
registry.find_entry_points = lambda group: ()
from assay.core.errors import MissingPackage
from assay.models import MODELS
try:
    MODELS.get(sys.argv[1], where="--model")
except MissingPackage as error:
    print(error)
"""


@pytest.mark.parametrize(("name", "plugin"), [("human", "human"), ("moonshine", "speech"), ("ocr", "ocr")])
def test_a_plugin_that_is_not_installed_is_named_with_its_install_command(name: str, plugin: str) -> None:
    # in a new process, because another test may have loaded the plugin
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_PLUGINS, name], capture_output=True, text=True, check=True
    )
    assert f"`{name}` is part of the plugin `assay-plugin-{plugin}`" in result.stdout
    assert format_plugin_install_command(f"assay-plugin-{plugin}") in result.stdout


def test_installed_plugins_are_listed() -> None:
    assert not MODELS.missing_plugins().keys() & {"assay-plugin-human"}
    assert {"human", "ocr", "speech"} <= set(MODELS.names())
