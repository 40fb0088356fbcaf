"""Executes a plan: request scheduling, concurrency, prefetch, dialogues, cost ledger."""
