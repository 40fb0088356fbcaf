"""Reads result files of other programs as runs: one module per format, registered in `formats`."""
