"""Shim for `lmms_eval.filters.selection`: base classes for filters of task helpers."""

from __future__ import annotations

from lmms_eval.api.filter import Filter

from assay.scoring.filters.selection import MajorityVote, TakeFirst, TakeFirstK

__all__ = ["Filter", "MajorityVoteFilter", "TakeFirstFilter", "TakeKFilter"]


class TakeFirstFilter(TakeFirst):
    """The `take_first` filter, to derive from."""

    per_document = False


class TakeKFilter(TakeFirstK):
    """The `take_first_k` filter, to derive from."""

    per_document = False


class MajorityVoteFilter(MajorityVote):
    """The `majority_vote` filter, to derive from."""

    per_document = False
