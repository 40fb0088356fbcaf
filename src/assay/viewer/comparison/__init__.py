"""Two runs side by side: which documents they share, how their scores differ, what else does."""
