"""From a foreign command line to Assay's own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from assay.core.errors import AssayError
from assay_compat.commands.flags import Translated

__all__ = ["enter", "with_model"]


def enter(words_for: Callable[[Sequence[str]], Translated]) -> NoReturn:
    """Carry out the command line of this process, translated; ends the process."""
    from assay.cli import main
    from assay.cli.app import print_error

    try:
        translated = words_for(sys.argv[1:])
    except AssayError as error:
        print_error(error)
        sys.exit(error.exit_code)
    for remark in translated.remarks:
        sys.stderr.write(f"note: {remark}\n")
    main(translated.words)
    raise SystemExit  # `main` has left already


def with_model(translated: Translated, model: str) -> Translated:
    """Their default model, where the command names none."""
    given = translated.given
    if "model" in given or ("config" in given and _names_model(Path(str(given["config"])))):
        return translated
    return Translated([*translated.words, "--model", model], translated.remarks, given)


def _names_model(config: Path) -> bool:
    from assay.engine.planning.config_files import read_yaml

    said = read_yaml(config, "config file")
    return isinstance(said, dict) and "model" in said
