"""Stand-in for `transformers.data`."""
