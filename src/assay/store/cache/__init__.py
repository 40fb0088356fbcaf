"""The response cache shared between runs."""
