"""Curves of a watched training run: the score of each checkpoint with its interval, changes, regressions and the best one."""
