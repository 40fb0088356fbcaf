"""Data-parallel training: `torchrun --nproc-per-node 2 train.py ...`. No effect with one process."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import distributed


def init_process_group() -> int:
    """Join the other processes, if any, and return the rank of this one."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        distributed.init_process_group("gloo")
        return distributed.get_rank()
    return 0


def average_gradients(parameters: Sequence[torch.nn.Parameter]) -> None:
    """Replace every gradient by its mean over the processes."""
    if not distributed.is_initialized():
        return
    wanted = [each for each in parameters if each.requires_grad]
    parts = [torch.zeros_like(each) if each.grad is None else each.grad for each in wanted]
    flat = torch.cat([part.flatten() for part in parts])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    for each, mean in zip(wanted, flat.split([part.numel() for part in parts]), strict=True):
        each.grad = mean.view_as(each)
