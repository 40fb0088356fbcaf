"""Generate the reference pages and the keyword arguments of `assay.run` from code.

python scripts/generate_reference.py            write the pages
python scripts/generate_reference.py --check    exit with 1 if a page is out of date
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.reference import catalogue, commands, json_schemas, keys, keywords

from assay.core.options.run_spec import Option, list_options

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"

OPTIONS_HEAD = """\
# Options

<!-- made by scripts/generate_reference.py: change src/assay/core/options/run_spec.py instead -->

Every option is a flag of `assay run` and `assay plan` (with dashes or underscores), a key of the `--config` file, and a keyword
argument of `assay.run()`, with the same name.

The same command with the same options resumes a run. Options marked * can change between the two: they cannot affect a prompt,
an answer or a score.
"""


def generate_options_page() -> str:
    """Return the page of run options, one table per section."""
    sections: dict[str, list[str]] = {}
    for name, default, option in list_options():
        sections.setdefault(option.section, []).append(_format_row(name, default, option))
    pieces = [OPTIONS_HEAD]
    for section, rows in sections.items():
        pieces.append(f"\n## {section}\n\n| option | default | description |\n|---|---|---|\n")
        pieces += rows
    return "".join(pieces)


def _format_row(name: str, default: Any, option: Option) -> str:
    value = "" if option.flag else f" {option.metavar}"
    flag = f"`--{name}{value}`" + (f", `-{option.short}`" if option.short else "")
    marker = "" if option.affects_results else " *"
    cells = (flag + marker, _format_default(default), option.help.replace("<", "\\<"))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _format_default(value: Any) -> str:
    if value is None or value == {} or value == []:
        return ""
    if isinstance(value, (list, tuple)):
        return f"`{','.join(map(str, value))}`"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


PAGES = {
    "options.md": generate_options_page,
    "commands.md": commands.generate_page,
    "task-files.md": keys.generate_page,
    "names.md": catalogue.generate_names_page,
    "errors.md": catalogue.generate_errors_page,
    keywords.PATH: keywords.generate_module,
    "json.md": json_schemas.build_page,
}


def main() -> None:
    """Write or check the pages."""
    stale = []
    for name, generate in PAGES.items():
        path, text = REFERENCE / name, generate()
        if not path.is_file() or path.read_text("utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
    if stale:
        print(f"{'out of date' if '--check' in sys.argv else 'written'}: {', '.join(stale)}")
    sys.exit(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    main()
