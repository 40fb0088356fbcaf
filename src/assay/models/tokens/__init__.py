"""Shared code of adapters that work on tokens: token pairs, rolling windows, stop strings, reasoning, chat templates.

The rules are those of lm-evaluation-harness, so that scores are comparable. Where it would crash (a continuation without
tokens), `Unanswerable` is raised, and the adapter reports a failure for that request.
"""

from __future__ import annotations

from assay.models.tokens.pairs import (
    EncodeTexts,
    Pair,
    TextEncoder,
    Unanswerable,
    encode_pair,
    encode_pairs,
    fit_pair,
    fit_prompt,
    split_rolling_windows,
)
from assay.models.tokens.stop_strings import StopStringDetector, cut_at_stops, split_thinking
from assay.models.tokens.token_texts import build_tokens, decode_each_token, tokens_from_bytes

__all__ = [
    "EncodeTexts",
    "Pair",
    "StopStringDetector",
    "TextEncoder",
    "Unanswerable",
    "build_tokens",
    "cut_at_stops",
    "decode_each_token",
    "encode_pair",
    "encode_pairs",
    "fit_pair",
    "fit_prompt",
    "split_rolling_windows",
    "split_thinking",
    "tokens_from_bytes",
]
