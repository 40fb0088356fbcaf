"""The mini corpora contain task files, not tests."""

from __future__ import annotations

collect_ignore_glob = ["mini_lm_eval/*", "mini_lmms_eval/*"]
