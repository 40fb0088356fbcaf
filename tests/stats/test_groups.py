from __future__ import annotations

import pytest

from assay.core.errors import AssayError
from assay.stats.groups import Part, pool

PARTS = [
    Part(value=0.61, stderr=0.0421, size=100),
    Part(value=0.43, stderr=0.0713, size=37),
    Part(value=0.5512, stderr=0.0199, size=512),
]


def test_documents_weigh_alike_by_default() -> None:
    pooled = pool(PARTS)
    assert (pooled.value, pooled.stderr, pooled.size) == (0.5533503852080124, 0.017467987715201073, 649)


def test_tasks_weigh_alike_when_asked_to() -> None:
    pooled = pool(PARTS, weight_by_size=False)
    assert (pooled.value, pooled.stderr) == (0.5304000000000001, 0.028386440424963466)


def test_the_older_error_of_a_mean_of_tasks_is_still_to_be_had() -> None:
    assert pool(PARTS, weight_by_size=False, pooled_error=True).stderr == 0.017467987715201073


@pytest.mark.parametrize("weight_by_size", [True, False])
def test_a_task_without_an_error_leaves_the_group_without_one(weight_by_size: bool) -> None:
    pooled = pool([*PARTS, Part(value=0.5, stderr=None, size=1)], weight_by_size=weight_by_size)
    assert pooled.stderr is None


def test_tasks_of_one_document_have_no_pooled_error() -> None:
    assert pool([Part(value=1.0, stderr=0.0, size=1), Part(value=0.0, stderr=0.0, size=1)]).stderr is None


def test_no_tasks_are_not_zero() -> None:
    with pytest.raises(AssayError, match="nothing to pool"):
        pool([])
