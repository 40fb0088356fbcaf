"""Views of the documents of a run: records, samples, details and score tables."""
