"""`import assay` and `assay --help` load nothing heavy. Counted in modules, because seconds depend on the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

HEAVY = {
    "PIL", "asyncio", "datasets", "http", "jinja2", "numpy", "pandas", "ray", "rich", "sacrebleu", "safetensors", "sklearn",
    "sqlite3", "tokenizers", "torch", "transformers", "vllm", "yaml",
}  # fmt: skip
MOST_MODULES = 150
"""Modules that `assay --help` may load beyond what the interpreter loads for itself."""

needs_cli = pytest.mark.skipif(find_spec("assay.cli") is None, reason="there is no assay.cli yet")


def list_modules_after(code: str) -> set[str]:
    """The modules a fresh interpreter has loaded because of `code`."""
    script = (
        "import sys; before = set(sys.modules)\n"
        f"{code}\n"
        "import json; print('\\n' + json.dumps(sorted(set(sys.modules) - before)))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout.splitlines()[-1]))


def call(*arguments: str) -> str:
    return (
        f"sys.argv = {['assay', *arguments]!r}\n"
        "from assay.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as stop:\n    assert not stop.code, stop.code"
    )


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import assay", id="import assay"),
        pytest.param("import assay.cli", id="import assay.cli", marks=needs_cli),
        pytest.param(call("--help"), id="assay --help", marks=needs_cli),
        pytest.param(call("run", "--help"), id="assay run --help", marks=needs_cli),
        pytest.param(call("--version"), id="assay --version", marks=needs_cli),
    ],
)
def test_nothing_heavy_is_loaded_by(code: str) -> None:
    assert not {name.partition(".")[0] for name in list_modules_after(code)} & HEAVY


@needs_cli
def test_help_loads_few_modules() -> None:
    loaded = list_modules_after(call("--help"))
    assert len(loaded) <= MOST_MODULES, sorted(loaded)


def test_the_measure_sees_a_heavy_import() -> None:
    assert "numpy" in list_modules_after("import numpy")
