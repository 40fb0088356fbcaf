"""The batch budget shrinks when memory runs out and grows again."""

from __future__ import annotations

import pytest

from assay.models.hf.batch_budget import BatchBudget, is_out_of_memory


class OutOfMemoryError(RuntimeError):
    """The error class of torch."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OutOfMemoryError("tried to allocate 2 GiB"), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling"), True),
        (RuntimeError("The size of tensor a (3) must match the size of tensor b"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_out_of_memory_errors_are_recognized(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_a_budget_grows_again_below_the_size_that_failed() -> None:
    budget = BatchBudget(64, minimum=2)
    assert budget.halve() and budget.halve()
    assert budget.size == 16
    for _ in range(200):
        budget.record_success()
    assert budget.size == 31  # 32 did not fit


def test_a_budget_without_failures_stays() -> None:
    budget = BatchBudget(10)
    for _ in range(100):
        budget.record_success()
    assert budget.size == 10
