"""Exports of a run for other programs. `formats` lists the formats."""
