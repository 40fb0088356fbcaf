"""Task files: find them, read their YAML and includes, select tasks by name, import helper functions."""
