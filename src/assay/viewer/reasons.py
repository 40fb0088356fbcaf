"""Why a document has no score, in one line: what is kept may be a whole traceback."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["reason"]

_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+)')
_OURS = str(Path(__file__).parents[1])
_MODULE = re.compile(r"^(?:\w+\.)+(?=\w+(?::|$))")


def reason(why: str) -> str:
    """The line that says most, and where: of a traceback the error with the last line of the task's own code.

    >>> reason("the media file `a.png` is not there\\n  at task.yaml:6, doc_to_visual")
    'the media file `a.png` is not there (task.yaml:6, doc_to_visual)'
    """
    lines = why.strip().splitlines()
    if not lines:
        return "no reason given"
    if not lines[0].startswith("Traceback "):
        places = [line.strip()[3:] for line in lines[1:] if line.strip().startswith("at ")]
        return f"{lines[0]} ({places[0]})" if places else lines[0]
    frames = [(at, found) for at, line in enumerate(lines) if (found := _FRAME.match(line))]
    after = frames[-1][0] + 1 if frames else 1
    what = next((line for line in lines[after:] if not line.startswith(" ")), lines[-1])
    theirs = [found for _, found in frames if not found["file"].startswith(_OURS)]
    place = f" ({Path(theirs[-1]['file']).name}:{theirs[-1]['line']})" if theirs else ""
    return f"{_MODULE.sub('', what)}{place}"
