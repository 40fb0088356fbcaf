"""Who may import whom. The contracts are in pyproject.toml; `lint-imports` explains a broken one."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.architecture.syntax_trees import parse_module

PROJECT = Path(__file__).parents[2]
SOURCE = PROJECT / "src" / "assay"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "builtin_tasks" not in path.parts)
HEAVY = {"datasets", "ray", "sacrebleu", "sklearn", "tokenizers", "torch", "transformers", "vllm"}


def test_every_contract_is_kept() -> None:
    lint_imports = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    if lint_imports is None:
        pytest.skip("import-linter is not installed")
    result = subprocess.run(
        [lint_imports, "--no-logo", "--no-cache"], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def find_load_time_imports(tree: ast.Module) -> Iterator[str]:
    """Every module a file imports when it is imported itself: not in functions, not for type checkers."""
    waiting: list[ast.AST] = [*tree.body]
    while waiting:
        match waiting.pop():
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                continue
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=orelse):
                waiting += orelse
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module)):
                yield module
            case other:
                waiting += ast.iter_child_nodes(other)


def find_all_imports(tree: ast.Module) -> Iterator[str]:
    """Every module a file imports anywhere."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module)):
                yield module


def test_heavy_packages_are_imported_when_first_used() -> None:
    assert len(MODULES) > 100
    loaded = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in MODULES
        for name in find_load_time_imports(parse_module(path))
        if name.partition(".")[0] in HEAVY
    ]
    assert not loaded


def test_core_imports_only_itself_and_the_standard_library() -> None:
    modules = [path for path in MODULES if path.is_relative_to(SOURCE / "core")]
    assert len(modules) > 10
    foreign = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in modules
        for name in find_all_imports(parse_module(path))
        if name.partition(".")[0] not in sys.stdlib_module_names and not name.startswith("assay.core")
    ]
    assert not foreign


def test_the_readers_of_imports_tell_loading_from_using() -> None:
    tree = ast.parse(
        "import a\n"
        "from b.c import d\n"
        "if TYPE_CHECKING:\n    import e\nelse:\n    import f\n"
        "class G:\n    import g\n    def method(self):\n        import h\n"
        "try:\n    import i\nexcept ImportError:\n    pass\n"
    )
    assert set(find_load_time_imports(tree)) == {"a", "b.c", "f", "g", "i"}
    assert set(find_all_imports(tree)) == {"a", "b.c", "e", "f", "g", "h", "i"}
