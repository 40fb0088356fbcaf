"""Facts of events for stored runs."""

from __future__ import annotations

from typing import Any

from assay.viewer.exports.event_facts import build_result_facts, build_stored_start_facts


def test_results_and_numbers_are_those_of_the_run(rich_run: Any) -> None:
    facts = build_result_facts(rich_run)
    assert len(facts["numbers"]) == len(rich_run.estimates)
    assert facts["results"]["results"]["choices"]["acc,none"] == 0.5
    assert facts["outcomes"]["sums"] == {"failed": 1, "scored": 4}


def test_the_start_of_a_stored_run_has_its_options(rich_run: Any) -> None:
    facts = build_stored_start_facts(rich_run)
    assert (facts["run_id"], facts["model"], facts["tasks"]["choices"]) == (rich_run.id, "org/tiny", 4)
    assert facts["options"]["tasks"] == rich_run.facts["spec"]["tasks"]
