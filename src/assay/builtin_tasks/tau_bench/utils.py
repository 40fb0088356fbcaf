"""The tasks of a tau-bench checkout, and the instructions of its users."""

from __future__ import annotations

from functools import partial

from assay.agents.tau_bench import build_user_instructions, list_documents

__all__ = ["build_user_instructions", "list_airline_tasks", "list_retail_tasks"]

list_airline_tasks = partial(list_documents, domain="airline")
list_retail_tasks = partial(list_documents, domain="retail")
