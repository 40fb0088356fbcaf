"""Load YAML, and refuse files that are nested too deeply or whose aliases expand to an enormous document.

The parser shares aliased nodes, so such a file is small in memory. Everything that walks, copies or prints it would need
exponential time.
"""

from __future__ import annotations

from typing import Any

import yaml

__all__ = ["check_aliases", "check_depth", "load_yaml"]

_MAX_EXPANDED_NODES = 100_000
_MAX_DEPTH = 200
_MIN_EXPANSION = 4
"""A file that is large without aliases is accepted."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(text: str, loader_class: Any = None) -> Any:
    """Load a YAML document.

    Raises:
        yaml.YAMLError: The text is not valid YAML, is nested too deeply, or its aliases expand to an enormous document.
    """
    check_depth(text)
    loader = (loader_class or _Loader)(text)
    try:
        node = loader.get_single_node()
        check_aliases(node)
        return loader.construct_document(node) if node is not None else None
    finally:
        loader.dispose()


def check_depth(text: str) -> None:
    """Check the nesting before the parser, which needs stack for every level.

    Raises:
        yaml.YAMLError: The document is nested too deeply.
    """
    if (
        text.count("[") + text.count("{") + text.count("- -") <= _MAX_DEPTH
        and "\n" + " " * _MAX_DEPTH not in text
    ):
        return  # fast path: nothing can be nested so deeply
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            depth += 1
            if depth > _MAX_DEPTH:
                raise _build_error("nested too deeply", event)
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            depth -= 1


def check_aliases(node: Any) -> None:
    """Check the size of a document with all aliases expanded.

    Raises:
        yaml.YAMLError: The document is enormous, or an alias contains itself.
    """
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()
    waiting = [] if node is None else [node]
    while waiting:
        current = waiting[-1]
        key = id(current)
        children = _list_children(current)
        missing = [] if key in sizes else [child for child in children if id(child) not in sizes]
        if missing and key not in open_nodes:
            open_nodes.add(key)
            if any(id(child) in open_nodes for child in missing):
                raise _build_error("an alias contains itself", current)
            waiting += missing
            continue
        waiting.pop()
        open_nodes.discard(key)
        if key not in sizes:
            sizes[key] = 1 + sum(sizes[id(child)] for child in children)
    expanded = sizes[id(node)] if node is not None else 0
    if expanded > _MAX_EXPANDED_NODES and expanded > _MIN_EXPANSION * len(sizes):
        raise _build_error(f"the aliases expand to more than {_MAX_EXPANDED_NODES:,} values", node)


def _list_children(node: Any) -> list[Any]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _build_error(problem: str, node: Any) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
