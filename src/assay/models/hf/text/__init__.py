"""Causal and encoder-decoder text models: scoring and generation."""
