"""Who may import whom. The contracts are in pyproject.toml; `lint-imports` explains a broken one."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_heavy_packages_are_imported_when_first_used(path: Path) -> None:
    loaded = {name.partition(".")[0] for name in find_load_time_imports(ast.parse(path.read_text("utf-8")))}
    assert not loaded & HEAVY


@pytest.mark.parametrize("path", sorted((SOURCE / "core").rglob("*.py")), ids=lambda path: path.name)
def test_core_imports_only_itself_and_the_standard_library(path: Path) -> None:
    names = set(find_all_imports(ast.parse(path.read_text("utf-8"))))
    foreign = {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names}
    assert not {name for name in foreign if not name.startswith("assay.core")}


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
