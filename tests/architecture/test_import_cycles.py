"""No import cycle between modules of `assay` and `assay_compat`; deferred and type-checking imports count."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.architecture.syntax_trees import walk_module

SOURCE = Path(__file__).parents[2] / "src"
PACKAGES = ("assay", "assay_compat")

Graph = dict[str, set[str]]


def find_modules() -> dict[str, Path]:
    """Return the path of every module by its dotted name; task helpers and shims of other packages are user code."""
    modules = {}
    for package in PACKAGES:
        for path in sorted((SOURCE / package).rglob("*.py")):
            parts = path.relative_to(SOURCE).with_suffix("").parts
            if "builtin_tasks" not in parts:
                modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def list_imports(nodes: Iterable[ast.AST], module: str, modules: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules that a module imports anywhere in its source, including its functions."""
    is_package = modules[module].name == "__init__.py"
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parts = parts[: len(parts) - node.level + (1 if is_package else 0)]
                base = ".".join([*parts, *([base] if base else [])])
            names = [
                f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base for alias in node.names
            ]
        else:
            continue
        yield from (name for name in names if name in modules and name != module)


def build_graph() -> Graph:
    modules = find_modules()
    return {module: set(list_imports(walk_module(path), module, modules)) for module, path in modules.items()}


def find_components(graph: Graph) -> list[set[str]]:
    """Return the strongly connected components with more than one module (Tarjan's algorithm, iterative)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components = []
    for root in graph:
        work = [(root, iter(sorted(graph[root])))] if root not in index else []
        while work:
            node, children = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                stack.append(node)
            for child in children:
                if child not in index:
                    work.append((child, iter(sorted(graph[child]))))
                    break
                if child in stack:
                    low[node] = min(low[node], index[child])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    position = stack.index(node)
                    component = set(stack[position:])
                    del stack[position:]
                    if len(component) > 1:
                        components.append(component)
    return components


def find_cycle(graph: Graph, component: set[str]) -> list[str]:
    """Return a shortest cycle inside a component."""
    best: list[str] = []
    for start in sorted(component):
        paths = [[start]]
        seen = {start}
        while paths:
            path = paths.pop(0)
            if start in graph[path[-1]] and len(path) > 1:
                if not best or len(path) < len(best):
                    best = path
                break
            for child in sorted(graph[path[-1]] & component - seen):
                seen.add(child)
                paths.append([*path, child])
    return [*best, best[0]]


def test_components_of_a_graph_with_two_cycles() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d", "f"}, "f": set[str]()}
    components = find_components(graph)
    assert sorted(map(sorted, components)) == [["a", "b", "c"], ["d", "e"]]
    assert find_cycle(graph, {"d", "e"}) == ["d", "e", "d"]


def test_deferred_and_type_checking_imports_are_found() -> None:
    source = "if TYPE_CHECKING:\n    from assay.core import errors\ndef run():\n    import assay.api\n"
    found = set(list_imports(ast.walk(ast.parse(source)), "assay.cli.run", find_modules()))
    assert found == {"assay.core.errors", "assay.api"}


def test_no_import_cycles() -> None:
    graph = build_graph()
    cycles = [
        f"{len(component)} modules: {' -> '.join(find_cycle(graph, component))}"
        for component in find_components(graph)
    ]
    assert not cycles, "\n" + "\n".join(cycles)
