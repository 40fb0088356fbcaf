"""The reason a document has no score, in one line; the stored reason may be a whole traceback."""

from __future__ import annotations

import re
from pathlib import Path

from assay.core.installation import find_distribution_name

__all__ = ["summarise_reason"]

_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+)')
_TRACEBACK = "Traceback (most recent call last):"
_ASSAY_FOLDER = str(Path(__file__).parents[2])
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_MODULE = re.compile(r"^(?:\w+\.)+(?=\w+(?::|$))")


def summarise_reason(why: str) -> str:
    """Return the most informative line with its location; of a traceback, the error and the last line of task code.

    A kind of failure before the traceback is kept: `not rendered: KeyError: 'question' (utils.py:3)`. The line of a package
    that is not installed ends with the command that installs it.

    >>> summarise_reason("media file not found: `a.png`\\n  at task.yaml:6, doc_to_visual")
    'media file not found: `a.png` (task.yaml:6, doc_to_visual)'
    """
    lines = why.strip().splitlines()
    if not lines:
        return "unknown reason"
    kind, found, _ = lines[0].partition(_TRACEBACK)
    if not found:
        places = [line.strip()[3:] for line in lines[1:] if line.strip().startswith("at ")]
        return f"{lines[0]} ({places[0]})" if places else lines[0]
    frames = [(index, frame) for index, line in enumerate(lines) if (frame := _FRAME.match(line))]
    after = frames[-1][0] + 1 if frames else 1
    what = next((line for line in lines[after:] if not line.startswith(" ")), lines[-1])
    theirs = [frame for _, frame in frames if not frame["file"].startswith(_ASSAY_FOLDER)]
    place = f" ({Path(theirs[-1]['file']).name}:{theirs[-1]['line']})" if theirs else ""
    return f"{kind}{_MODULE.sub('', what)}{place}{_format_install_hint(what)}"


def _format_install_hint(error: str) -> str:
    """Return the command that installs the package that an error misses; empty for other errors."""
    missing = _MISSING_MODULE.fullmatch(error)
    return f"; pip install {find_distribution_name(missing[1])}" if missing is not None else ""
