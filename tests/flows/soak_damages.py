"""The part of the soak test that damages the journals of killed runs."""

from __future__ import annotations

import os
from pathlib import Path

from tests.flows.journal_damages import DAMAGES, DamageTest

DAMAGES_IN_TOTAL = 204
DAMAGE_TEXT = """\
The journal of a run that was killed at one of several moments is damaged, in a way that a seed chooses. `runs`, `view`, `verify`
and `repair` must agree on whether it is damaged (*intact*: only the newest records are missing). Resuming must end with identical
documents, requests, responses, answers, verdicts, outcomes, estimates and samples. *Requested again* counts stored responses whose
records were damaged or cut off."""
DAMAGE_COLUMNS = (
    "damage | damages | damaged | intact | stored responses used | requested again | results | time"
)


def run_damages(folder: Path, kind: str, damages: int) -> str:
    """Make this many damages of one kind; return the table row without its name and time."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        test = DamageTest(folder)
        for seed in range(damages):
            try:
                test.check(kind, seed)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error
    finally:
        os.chdir(before)
    counts = test.counts[kind]
    return (
        f"{counts.damages} | {counts.states['damaged']} | {counts.states['intact']} | {counts.recovered}"
        f" | {counts.asked_again} | all identical"
    )


def list_kinds() -> list[tuple[str, int]]:
    """Return how many damages of each kind to make."""
    return [(kind, -(-DAMAGES_IN_TOTAL // len(DAMAGES))) for kind in DAMAGES]
