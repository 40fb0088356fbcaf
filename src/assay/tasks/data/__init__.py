"""Datasets: local files, the `datasets` library, media archives and media columns, as rows."""
