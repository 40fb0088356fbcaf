"""What every adapter that works on tokens shares: pairs, windows, stop strings, thinking. Pure functions, no tokenizer of its own.

The meaning is lm-evaluation-harness's, so that scores can be compared; where it would crash (a continuation without
tokens), `Unanswerable` says why, and the adapter makes that one request's failure of it.
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
    rolling_windows,
)
from assay.models.tokens.stop_strings import StopWatch, cut_at_stops, split_thinking
from assay.models.tokens.token_texts import pieces_of, tokens_of_bytes, told_tokens

__all__ = [
    "EncodeTexts",
    "Pair",
    "StopWatch",
    "TextEncoder",
    "Unanswerable",
    "cut_at_stops",
    "encode_pair",
    "encode_pairs",
    "fit_pair",
    "fit_prompt",
    "pieces_of",
    "rolling_windows",
    "split_thinking",
    "told_tokens",
    "tokens_of_bytes",
]
