"""Stand-ins for foreign packages. Loaded under the foreign names by `assay_compat.import_finders`."""
