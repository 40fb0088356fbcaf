"""Tools for maintainers that run from a clone: they are not part of the wheel."""
