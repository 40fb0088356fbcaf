"""Options of a run: their declarations, parsers and defaults."""
