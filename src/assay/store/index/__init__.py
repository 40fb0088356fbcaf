"""A secondary index of the documents of a run: columns for filters and a text index, for queries the journal is slow at.

The index is built from the journal, stored under `ASSAY_HOME`, and extended while the run continues. It can be deleted
at any time.
"""
