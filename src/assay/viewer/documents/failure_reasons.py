"""The reason a document has no score, in one line; the stored reason may be a whole traceback."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["summarise_reason"]

_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+)')
_ASSAY_FOLDER = str(Path(__file__).parents[2])
_MODULE = re.compile(r"^(?:\w+\.)+(?=\w+(?::|$))")


def summarise_reason(why: str) -> str:
    """Return the most informative line with its location; of a traceback, the error and the last line of task code.

    >>> summarise_reason("media file not found: `a.png`\\n  at task.yaml:6, doc_to_visual")
    'media file not found: `a.png` (task.yaml:6, doc_to_visual)'
    """
    lines = why.strip().splitlines()
    if not lines:
        return "unknown reason"
    if not lines[0].startswith("Traceback "):
        places = [line.strip()[3:] for line in lines[1:] if line.strip().startswith("at ")]
        return f"{lines[0]} ({places[0]})" if places else lines[0]
    frames = [(index, found) for index, line in enumerate(lines) if (found := _FRAME.match(line))]
    after = frames[-1][0] + 1 if frames else 1
    what = next((line for line in lines[after:] if not line.startswith(" ")), lines[-1])
    theirs = [found for _, found in frames if not found["file"].startswith(_ASSAY_FOLDER)]
    place = f" ({Path(theirs[-1]['file']).name}:{theirs[-1]['line']})" if theirs else ""
    return f"{_MODULE.sub('', what)}{place}"
