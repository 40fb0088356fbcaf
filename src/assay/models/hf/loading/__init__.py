"""Read a checkpoint: its files, config, weights, tokenizer and supported media."""
