"""The built-in kinds of judge, one per module."""
