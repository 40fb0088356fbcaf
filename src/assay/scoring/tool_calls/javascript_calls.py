"""Read a function call written as JavaScript: `find(text="a", limit=10)`.

Arguments are source text; `javascript_values` converts them. The parser is tree-sitter, of the extra `tools`.
"""

from __future__ import annotations

from assay.scoring.tool_calls.matching import Call
from assay.scoring.tool_calls.syntax_tree import add_argument, parse_source

__all__ = ["parse_javascript_call"]


def parse_javascript_call(source: str) -> Call | None:
    """Return the first call that is a statement of the source text, or None if it has none.

    Raises:
        CallSyntaxError: The text is not JavaScript, or an argument is given twice.
    """
    statements = parse_source(source, "javascript").children
    expressions = [
        child for node in statements if node.type == "expression_statement" for child in node.children
    ]
    for node in expressions:
        if node.type == "call_expression":
            arguments: dict[str | None, str] = {}
            for child in node.children[1].children:
                if child.type == "assignment_expression":
                    add_argument(
                        arguments, child.children[0].text.decode(), _unquote(child.children[2].text.decode())
                    )
                elif child.type in ("identifier", "true"):
                    add_argument(arguments, None, child.text.decode())
            return Call(node.children[0].text.decode(), arguments)
    return None


def _unquote(text: str) -> str:
    for quote in "\"'":
        if text.startswith(quote) and text.endswith(quote):
            return text[1:-1]
    return text
