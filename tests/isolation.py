"""Isolate tests from the user and from each other: no test reads the user's files, settings, keys or runs.

Importing this module removes the user's settings from the environment of the test process, because packages such as
`huggingface_hub` read theirs when they are imported. The fixture then gives each test a home, caches and a working folder
of its own.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from assay.core.registry import Registry


TEST_SETTINGS = re.compile(
    r"ASSAY_(SHARED|CHROMIUM|SCREENSHOTS|LM_EVAL_TASKS|LMMS_EVAL_TASKS|(TEST|CORPUS|PEER)_.*)"
)
"""Variables that configure the tests themselves; every other `ASSAY_…` is the user's."""

USER_SETTINGS = re.compile(
    r"""(ASSAY|OPENAI|AZURE|ANTHROPIC|CLAUDE|GEMINI|GOOGLE|VERTEX|AWS|BEDROCK|COHERE|MISTRAL|GROQ|TOGETHER|DEEPSEEK
    |OPENROUTER|FIREWORKS|XAI|LITELLM|HF|HUGGINGFACE|HUGGING_FACE|HUGGINGFACEHUB|TRANSFORMERS|DATASETS|VLLM|RAY|WANDB
    |MLFLOW|TRACKIO|GRADIO|OTEL|KEYRING|XDG)_.*
    |.*_(API_KEY|ACCESS_TOKEN|AUTH_TOKEN)
    |API_TYPE|API_KEY|MODEL_VERSION|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR|CLICOLOR_FORCE|PYTHON_KEYRING_BACKEND
    """,
    re.VERBOSE,
)
"""Variables that change what Assay, or a package that it uses, does."""

OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
FOLDERS = {
    "HOME": "",
    "ASSAY_HOME": "assay",
    "XDG_CACHE_HOME": ".cache",
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
}
"""Where each variable points, below the home of a test."""


def is_user_setting(name: str) -> bool:
    """Return whether a test must not see this environment variable of the user."""
    return bool(USER_SETTINGS.fullmatch(name)) and not TEST_SETTINGS.fullmatch(name)


def make_isolated_environment(home: Path) -> dict[str, str]:
    """Return the variables that put everything Assay reads of a user below one folder."""
    folders = {name: str(home / folder) for name, folder in FOLDERS.items()}
    null_keyring = {"PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring"}
    return {**folders, **null_keyring, **dict.fromkeys(OFFLINE, "1")}


def _isolate_process() -> None:
    """Isolate what runs outside of a test: imports, collection and fixtures of a session."""
    home = Path(tempfile.mkdtemp(prefix="assay-tests-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for name in filter(is_user_setting, list(os.environ)):
        del os.environ[name]
    os.environ.update(make_isolated_environment(home))


_isolate_process()
_numbers = count()


@pytest.fixture(autouse=True)
def assay_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give the test a home and an empty working folder of its own; return its ASSAY_HOME.

    A `MonkeyPatch` of its own: a test that undoes its changes stays isolated.
    """
    folder = tmp_path_factory.getbasetemp() / "isolated" / str(next(_numbers))
    work = folder / "work"
    work.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in make_isolated_environment(folder).items():
            patch.setenv(name, value)
        patch.chdir(work)
        yield folder / "assay"


@cache
def _list_registries() -> list[Registry[Any]]:
    """Import the registries when the process is isolated."""
    from assay.agents.environments import ENVIRONMENTS
    from assay.agents.functions import TOOLS
    from assay.agents.solvers import SOLVERS
    from assay.models import MODELS
    from assay.sandboxes import SANDBOXES
    from assay.scoring.filters import FILTERS
    from assay.scoring.judges import JUDGES
    from assay.scoring.metrics import METRICS
    from assay.stats.aggregations import AGGREGATIONS
    from assay.viewer.sinks import SINKS

    return [AGGREGATIONS, ENVIRONMENTS, FILTERS, JUDGES, METRICS, MODELS, SANDBOXES, SINKS, SOLVERS, TOOLS]


@pytest.fixture(autouse=True)
def registered_names() -> Iterator[None]:
    """Forget what a test registers: metrics of task files, classes of its own."""
    before = []
    for registry in _list_registries():
        registry.names()  # registers the built-ins, once
        before.append(dict(registry._items))
    yield
    for registry, items in zip(_list_registries(), before, strict=True):
        registry._items.clear()
        registry._items.update(items)
