"""The JSON schemas of machine-readable output, and the page that lists them.

The schemas in `docs/reference/schemas` are written by hand; `tests/cli/test_json_schemas.py` validates real output against them.
"""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["SCHEMAS", "build_page", "read_schema"]

SCHEMAS = Path(__file__).parents[2] / "docs" / "reference" / "schemas"

_HEAD = """# JSON output

<!-- made by scripts/generate_reference.py: change docs/reference/schemas instead -->

Every command with `--json` prints one JSON value to standard output; messages go to standard error. These [JSON Schemas](https://json-schema.org) (draft 2020-12)
describe the values. Numbers that are infinite or undefined are `null`. Further keys may be added; existing keys keep their meaning.

| output | schema | contents |
|---|---|---|
"""


def read_schema(path: Path) -> dict[str, object]:
    """Return a schema."""
    schema: dict[str, object] = json.loads(path.read_text("utf-8"))
    return schema


def build_page() -> str:
    """Return the page with a row per schema."""
    rows = []
    for path in sorted(SCHEMAS.glob("*.json")):
        schema = read_schema(path)
        rows.append(f"| `{schema['title']}` | [{path.name}](schemas/{path.name}) | {schema['description']} |")
    return _HEAD + "\n".join(rows) + "\n"
