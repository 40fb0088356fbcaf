"""`kill -9` of agent runs: the same transcripts, states and verdicts, and no effect twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.flows.agent_kills import DOCUMENTS, REPEATS, AgentKillTest

KILLS = 3


@pytest.mark.slow
def test_killed_agents_continue_where_they_were(tmp_path: Path) -> None:
    counts = AgentKillTest(tmp_path, seed=7).run(KILLS)
    assert counts.kills.total() == KILLS
    assert counts.different == [] and counts.repeated_letters == 0
    assert counts.identical == REPEATS * (counts.runs * DOCUMENTS - counts.in_doubt)
