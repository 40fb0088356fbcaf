"""Turns responses into verdicts: filters, metrics, LLM judges, worker processes."""
