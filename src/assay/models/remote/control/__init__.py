"""Concurrency limits, rate limits, retries and errors of calls."""
