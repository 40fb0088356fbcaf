"""The mini corpora hold tasks and the script that recorded them, not tests."""

from __future__ import annotations

collect_ignore_glob = ["mini_corpus/*", "mini_lmms_corpus/*"]
