"""Throughput of a model with synthetic requests, for `assay bench model`."""
