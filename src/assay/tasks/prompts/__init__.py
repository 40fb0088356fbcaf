"""Prompts: compile templates and fields, draw few-shot examples, convert media, render turns."""
