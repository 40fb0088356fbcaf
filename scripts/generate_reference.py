"""Write the reference pages that are made from code.

python scripts/generate_reference.py            writes them
python scripts/generate_reference.py --check    exits 1 when one is out of date
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.reference import catalogue, commands, keys

from assay.core.options.run_spec import Option, list_options

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"

OPTIONS_HEAD = """\
# Options

<!-- made by scripts/generate_reference.py: change src/assay/core/options/run_spec.py instead -->

Every option of a run. It is a flag of `assay run` and `assay plan` (dashes or underscores), a key of the file given
with `--config`, and a keyword argument of `assay.run()`, each under the same name.

A run is continued when it is asked for again with the same options. Those marked * do not count for that: they cannot
change a prompt, an answer or a score.
"""


def options_page() -> str:
    """The page of run options, one table per section."""
    sections: dict[str, list[str]] = {}
    for name, default, option in list_options():
        sections.setdefault(option.section, []).append(_row(name, default, option))
    pieces = [OPTIONS_HEAD]
    for section, rows in sections.items():
        pieces.append(f"\n## {section}\n\n| option | default | what it does |\n|---|---|---|\n")
        pieces += rows
    return "".join(pieces)


def _row(name: str, default: Any, option: Option) -> str:
    value = "" if option.flag else f" {option.metavar}"
    flag = f"`--{name}{value}`" + (f", `-{option.short}`" if option.short else "")
    mark = "" if option.affects_results else " *"
    cells = (flag + mark, _default(default), option.help.replace("<", "\\<"))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _default(value: Any) -> str:
    if value is None or value == {} or value == []:
        return ""
    if isinstance(value, (list, tuple)):
        return f"`{','.join(map(str, value))}`"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


PAGES = {
    "options.md": options_page,
    "commands.md": commands.page,
    "task-files.md": keys.page,
    "names.md": catalogue.page,
    "errors.md": catalogue.errors_page,
}


def main() -> None:
    """Write or check every page."""
    stale = []
    for name, make in PAGES.items():
        path, text = REFERENCE / name, make()
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
