"""Subsets of documents chosen from the scores of other models: sampling designs, weighted means and their intervals."""
