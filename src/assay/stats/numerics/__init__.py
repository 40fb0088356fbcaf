"""Numerical tools: distribution functions, exact sums, lists of values."""
