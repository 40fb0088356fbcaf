"""Synthesize documents for a task from its templates and helper files.

A schema is inferred statically: fields that templates and functions read, and hints for their types. When the harness
fails on a synthesized document, `repair` changes the schema after the error and the recording is tried again.
This module imports only the standard library, Jinja and, for images, Pillow.
"""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["Field", "Synthesizer", "TaskSources", "find_sources", "infer_schema"]

_WORDS = (
    "river stone green window market seven garden bridge coffee letter music doctor planet winter 42 3.14 -7 1,234 "
    "Zürich naïve 東京 Москва café it's (word) 50% — \\frac{1}{2} a_b yes no"
).split()
_LETTERS = "ABCD"
_KINDS = ("text", "number", "texts", "letter", "record", "records", "json", "float", "flag", "numbers")
_TEXT_METHODS = set(
    "strip split lower upper replace startswith endswith capitalize lstrip rstrip splitlines title format find "
    "encode isdigit partition rpartition removeprefix removesuffix join".split()
)
_RECORD_METHODS = {"keys", "values", "items"}
_LIST_METHODS = {"append", "extend", "sort", "pop", "insert"}
_NAME_HINTS = (
    (re.compile(r"(^|_)(image|img|picture|photo|visual)s?(_\d+)?$"), "image"),
    (
        re.compile(
            r"choices|options|endings|distractors|candidates|answers|targets|labels|aliases|references|_list$"
        ),
        "texts",
    ),
    (re.compile(r"(^|_)(label|gold|idx|index|id|num|number|count|year|level|gold_index|correct)$"), "number"),
    (re.compile(r"answer_?key|^answerkey$|(^|_)letter$"), "letter"),
    (re.compile(r"^(is|has|can)_"), "flag"),
)


@dataclass(slots=True)
class Field:
    """A field of a document: its kind, constants it is compared with, and the fields below it."""

    kind: str = ""
    constants: list[Any] = field(default_factory=list)
    fields: dict[str, Field] = field(default_factory=dict)
    repairs: int = 0

    def child(self, name: str) -> Field:
        if self.kind not in ("record", "records"):
            self.kind = "record"
        return self.fields.setdefault(name, Field())

    def item(self) -> Field:
        """Return the element of a list of records."""
        self.kind = "records" if self.fields or self.kind == "records" else self.kind or "texts"
        return self


@dataclass(slots=True, kw_only=True)
class TaskSources:
    """What is known about a task's documents before they exist."""

    templates: list[str] = field(default_factory=list)
    field_names: list[str] = field(default_factory=list)
    """Configuration values that may name a field."""

    choices: str = ""
    """The field that has the answer choices, as a dotted path."""

    helper_files: list[Path] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)


def find_sources(config: Mapping[str, Any], folder: Path) -> TaskSources:
    """Collect what a task's configuration says about its documents. `folder` contains the task file."""
    texts = [
        text
        for key in ("doc_to_text", "doc_to_target", "doc_to_choice", "gen_prefix", "description")
        for text in (config[key] if isinstance(config.get(key), list) else [config.get(key)])
        if isinstance(text, str)
    ]
    files = {*folder.glob("*.py")}
    for value in config.values():
        code = getattr(getattr(value, "func", value), "__code__", None)
        if code is not None and Path(code.co_filename).is_file():
            files.add(Path(code.co_filename))
    splits = [
        str(config[key])
        for key in ("training_split", "validation_split", "test_split", "fewshot_split")
        if config.get(key)
    ]
    choices = _SINGLE_FIELD.match(str(config.get("doc_to_choice") or ""))
    return TaskSources(
        choices=choices[1] if choices else "",
        templates=[text for text in texts if "{" in text],
        field_names=[text for text in texts if "{" not in text],
        helper_files=sorted(files),
        splits=splits,
    )


def infer_schema(sources: TaskSources) -> Field:
    """Return the schema of a document as the root field.

    >>> schema = infer_schema(TaskSources(templates=["{{question.strip()}} {{choices.text[0]}}"]))
    >>> schema.fields["question"].kind, schema.fields["choices"].fields["text"].kind
    ('text', 'texts')
    """
    root = Field(kind="record")
    for template in sources.templates:
        _read_template(template, root)
    for name in sources.field_names:
        if name.isidentifier():
            root.child(name)
    for path in sources.helper_files:
        try:
            tree = ast.parse(path.read_text("utf-8"))
        except (OSError, SyntaxError, UnicodeDecodeError):
            continue
        _HelperReader(root).visit(tree)
    if sources.choices:
        choices = root
        for name in sources.choices.split("."):
            choices = choices.child(name)
        choices.kind = choices.kind or "texts"
    return root


# --- templates -----------------------------------------------------------------------------------------------


def _read_template(template: str, root: Field) -> None:
    import jinja2
    from jinja2 import nodes

    try:
        tree = jinja2.Environment().parse(template)
    except jinja2.TemplateSyntaxError:
        return
    local = {node.name for node in tree.find_all(nodes.Name) if node.ctx == "store"}

    def find(node: nodes.Node) -> Field | None:
        if isinstance(node, nodes.Name):
            return None if node.name in local or node.name in _TEMPLATE_GLOBALS else root.child(node.name)
        if isinstance(node, nodes.Getattr):
            base = find(node.node)
            return None if base is None or node.attr in _ALL_METHODS else base.child(node.attr)
        if isinstance(node, nodes.Getitem):
            base = find(node.node)
            if base is None:
                return None
            if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
                return base.child(node.arg.value)
            return base.item()
        return None

    for node in tree.find_all((nodes.Name, nodes.Getattr, nodes.Getitem)):
        find(node)
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Getattr):
            _note_method(find(call.node.node), call.node.attr)
            if call.node.attr == "index" and call.args:
                _note_membership(find(call.node.node), find(call.args[0]))
            if call.node.attr == "index" and call.args and isinstance(call.node.node, nodes.List):
                _note_constants(
                    find(call.args[0]), [getattr(one, "value", None) for one in call.node.node.items]
                )
    for loop in tree.find_all(nodes.For):
        base = find(loop.iter)
        if base is not None:
            base.item()
    for part in tree.find_all(nodes.Filter):
        if part.name in ("join", "first", "last", "random") and part.node is not None:
            base = find(part.node)
            if base is not None:
                base.item()
    for compare in tree.find_all(nodes.Compare):
        values = [getattr(operand.expr, "value", None) for operand in compare.ops]
        _note_constants(find(compare.expr), values)


_TEMPLATE_GLOBALS = {
    "range",
    "dict",
    "lipsum",
    "cycler",
    "joiner",
    "namespace",
    "loop",
    "true",
    "false",
    "none",
}
_ALL_METHODS = _TEXT_METHODS | _RECORD_METHODS | _LIST_METHODS | {"index", "get", "count"}


def _note_method(target: Field | None, method: str) -> None:
    if target is None or target.kind:
        return
    if method in _TEXT_METHODS:
        target.kind = "text"
    elif method in _LIST_METHODS or method == "index":
        target.kind = "texts"
    elif method in _RECORD_METHODS:
        target.kind = "record"


def _note_membership(options: Field | None, answer: Field | None) -> None:
    """Note `options.index(answer)`: both get letters, so that the answer is one of the options."""
    if options is not None and answer is not None:
        options.kind, answer.kind = "letters", "letter"


def _note_constants(target: Field | None, values: Iterable[Any]) -> None:
    if target is not None:
        target.constants += [
            value for value in values if isinstance(value, (str, int)) and value not in target.constants
        ]


# --- helper files --------------------------------------------------------------------------------------------


class _HelperReader(ast.NodeVisitor):
    """Finds the fields that functions read from their arguments: `doc["x"]["y"]`, `doc.get("x")`, loops over them."""

    def __init__(self, root: Field) -> None:
        self.root = root
        self.names: dict[str, Field] = {}
        self.lookups: dict[str, list[Any]] = {}
        """Keys of dictionaries that are assigned to a name."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer = dict(self.names)
        parameters = [*node.args.posonlyargs, *node.args.args]
        for parameter in parameters[:2] if parameters and parameters[0].arg == "self" else parameters[:1]:
            if parameter.arg not in ("self", "text", "s", "items", "results", "predictions", "references"):
                self.names[parameter.arg] = self.root
        for _ in range(2):  # twice: names are assigned after their first use in loops
            self.generic_visit(node)
        self.names = outer

    def visit_Lambda(self, node: ast.Lambda) -> None:
        outer = dict(self.names)
        if node.args.args:
            self.names[node.args.args[0].arg] = self.root
        self.generic_visit(node)
        self.names = outer

    def find(self, node: ast.AST) -> Field | None:
        """Return the field an expression reads, if it reads one."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Subscript):
            base = self.find(node.value)
            if base is None:
                return None
            if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
                return base.child(node.slice.value)
            return None if base is self.root else base.item()
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
        ):
            base, key = self.find(node.func.value), node.args[0]
            if base is not None and isinstance(key, ast.Constant) and isinstance(key.value, str):
                return base.child(key.value)
        return None

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.find(node)
        if isinstance(node.value, ast.Name) and node.value.id in self.lookups:
            _note_constants(self.find(node.slice), self.lookups[node.value.id])
        if isinstance(node.value, ast.Dict):
            _note_constants(self.find(node.slice), [getattr(key, "value", None) for key in node.value.keys])
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        target = self.find(node.value)
        for name in node.targets:
            if isinstance(name, ast.Name) and isinstance(node.value, ast.Dict):
                self.lookups[name.id] = [getattr(key, "value", None) for key in node.value.keys]
            if isinstance(name, ast.Name):
                if target is not None and target is not self.root:
                    self.names[name.id] = target
                elif self.names.get(name.id) is not self.root:
                    self.names.pop(name.id, None)

    def visit_For(self, node: ast.For) -> None:
        self._note_loop(node.target, node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._note_loop(node.target, node.iter)
        self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        for generator in node.generators:
            self.visit(generator)
        self.generic_visit(node)

    def _note_loop(self, target: ast.AST, iterated: ast.AST) -> None:
        is_enumerate = isinstance(iterated, ast.Call) and getattr(iterated.func, "id", "") == "enumerate"
        if is_enumerate and isinstance(iterated, ast.Call) and iterated.args:
            iterated = iterated.args[0]
            target = target.elts[-1] if isinstance(target, ast.Tuple) else target
        source = self.find(iterated)
        if source is None or source is self.root:
            return
        source.item()
        if isinstance(target, ast.Name):
            self.names[target.id] = source

    def visit_Call(self, node: ast.Call) -> None:
        target = self.find(node)
        if isinstance(node.func, ast.Attribute):
            base = self.find(node.func.value)
            if base is not None and base is not self.root:
                _note_method(base, node.func.attr)
            if node.func.attr == "index" and node.args and base is not self.root:
                _note_membership(base, self.find(node.args[0]))
            if node.func.attr == "index" and isinstance(node.func.value, ast.List) and node.args:
                _note_constants(
                    self.find(node.args[0]), [getattr(item, "value", None) for item in node.func.value.elts]
                )
            if node.func.attr in ("loads", "literal_eval") and node.args:
                loaded = self.find(node.args[0])
                if loaded is not None:
                    loaded.kind = "json"
        elif isinstance(node.func, ast.Name) and node.args:
            target = self.find(node.args[0])
            kind = {"int": "number", "float": "number", "ord": "letter", "eval": "json"}.get(node.func.id)
            if target is not None and target is not self.root and kind and not target.kind:
                target.kind = kind
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        values = [getattr(one, "value", None) for one in node.comparators]
        for one in node.comparators:
            if isinstance(one, (ast.List, ast.Tuple, ast.Set)):
                values += [getattr(item, "value", None) for item in one.elts]
        _note_constants(self.find(node.left), values)
        self.generic_visit(node)


# --- documents -----------------------------------------------------------------------------------------------


class Synthesizer:
    """Builds documents of tasks and repairs their schemas after errors."""

    def __init__(self, documents: int = 9) -> None:
        self._documents = documents
        self._schemas: dict[str, Field] = {}
        self._sources: dict[str, TaskSources] = {}

    def build_rows(self, name: str, sources: TaskSources, split: str = "") -> list[dict[str, Any]]:
        """Build the documents of one split of a task."""
        if name not in self._schemas:
            self._schemas[name] = infer_schema(sources)
            self._sources[name] = sources
        draw = random.Random(f"{name}/{split}")
        schema = self._schemas[name]
        return [
            {key: _draw_value(key, child, draw, number) for key, child in schema.fields.items()}
            for number in range(self._documents)
        ]

    def repair(self, name: str, error: BaseException) -> bool:
        """Change the schema of a task after an error; return whether there was something left to try."""
        schema = self._schemas.get(name)
        if schema is None:
            return False
        if (missing := _find_missing_field(error)) and missing not in schema.fields:
            schema.child(missing)
            return True
        candidates = [
            schema.fields[key]
            for key in _find_fields_of_error(error.__traceback__, self._sources[name])
            if key in schema.fields
        ]
        for candidate in [*candidates, *schema.fields.values()]:
            if candidate.repairs < len(_KINDS):
                candidate.kind = _KINDS[candidate.repairs]
                candidate.repairs += 1
                return True
        return False


def _draw_value(name: str, schema: Field, draw: random.Random, number: int) -> Any:
    kind = schema.kind or next(
        (kind for pattern, kind in _NAME_HINTS if pattern.search(name.lower())), "text"
    )
    if schema.constants and kind in ("text", "letter", "number") and not schema.repairs:
        return draw.choice(schema.constants)
    match kind:
        case "record":
            return {key: _draw_value(key, child, draw, number) for key, child in schema.fields.items()}
        case "records":
            return [
                {key: _draw_value(key, child, draw, number) for key, child in schema.fields.items()}
                for _ in range(draw.randint(2, 4))
            ]
        case "number":
            return draw.randint(0, 3)
        case "numbers":
            return [draw.randint(0, 3) for _ in range(4)]
        case "float":
            return round(draw.uniform(0, 5), 3)
        case "flag":
            return draw.random() < 0.5
        case "letter":
            return draw.choice(_LETTERS)
        case "letters":
            return list(_LETTERS)
        case "texts":
            return [_draw_text(draw, 2) for _ in range(4)]
        case "json":
            return json.dumps([_draw_text(draw, 2) for _ in range(4)])
        case "image":
            return _draw_image(draw)
    return f"{_draw_text(draw, draw.randint(1, 6))}{number}"


def _draw_text(draw: random.Random, words: int) -> str:
    return " ".join(draw.choices(_WORDS, k=words))


def _draw_image(draw: random.Random) -> Any:
    from PIL import Image

    return Image.frombytes("RGB", (8, 6), bytes(draw.randrange(256) for _ in range(144)))


_FIELD_ACCESS = re.compile(r"""\[["'](\w+)["']\]|\.get\(["'](\w+)["']""")
_SINGLE_FIELD = re.compile(r"^(?:\{\{)?\s*([A-Za-z_][\w.]*)\s*(?:\}\})?$")
_UNDEFINED = re.compile(r"'(\w+)' is undefined|has no attribute '(\w+)'")


def _find_missing_field(error: BaseException) -> str:
    """Return the field an error says is missing."""
    if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
        return error.args[0] if error.args[0].isidentifier() else ""
    found = _UNDEFINED.search(str(error)) if type(error).__name__ == "UndefinedError" else None
    return (found[1] or found[2]) if found else ""


def _find_fields_of_error(trace: TracebackType | None, sources: TaskSources) -> Iterator[str]:
    """Return the fields that the failing lines of helper files mention, the innermost line first."""
    lines = []
    while trace is not None:
        path = Path(trace.tb_frame.f_code.co_filename)
        if path in sources.helper_files or path.parent in {one.parent for one in sources.helper_files}:
            with suppress(OSError, IndexError):
                lines.append(path.read_text("utf-8").splitlines()[trace.tb_lineno - 1])
        trace = trace.tb_next
    for line in reversed(lines):
        for subscript, argument in _FIELD_ACCESS.findall(line):
            yield subscript or argument
