"""A slow run in its own process: `python slow_run.py TASK OUTPUT HOLD`.

While the file HOLD exists, requests after the first few wait.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import assay
from assay.testing import ScriptedModel


class Waiting(ScriptedModel):
    """Answers the first requests at once and the others when the hold file is removed."""

    def __init__(self, hold: Path) -> None:
        super().__init__(lambda request: "2", name="waiting-model", window=4)
        self._hold = hold
        self._said = 0

    async def answer(self, window: Sequence[Any]) -> AsyncIterator[Any]:
        async for outcome in super().answer(window):
            while self._said >= 8 and self._hold.exists():
                await asyncio.sleep(0.02)
            self._said += 1
            yield outcome


if __name__ == "__main__":
    task, output, hold = sys.argv[1:]
    assay.run(model=Waiting(Path(hold)), tasks=[task], no_cache=True, output_path=output)
