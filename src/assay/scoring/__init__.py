"""Scoring: filters turn responses into answers, metrics and LLM judges turn answers into verdicts."""
