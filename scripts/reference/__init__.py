"""Reference pages that are made from code."""
