"""Arguments of remote models."""

from __future__ import annotations

from assay.models.remote.options import Options
from assay.models.remote.retries import RetryPolicy


def test_the_defaults_of_retries_are_those_of_the_policy() -> None:
    assert Options().retry_policy == RetryPolicy()


def test_a_short_backoff_shortens_the_longest_delay() -> None:
    policy = Options(retry_backoff_s=0.01, max_retries=2).retry_policy
    assert (policy.retries, policy.initial_delay_s, policy.max_delay_s) == (2, 0.01, 0.6)
