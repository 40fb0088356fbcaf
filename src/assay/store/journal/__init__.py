"""The journal of a run: rows, responses and the classes that read and write them."""
