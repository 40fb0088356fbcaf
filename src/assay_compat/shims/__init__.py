"""Shims for other packages, loaded under their upstream names by `assay_compat.import_finders`."""
