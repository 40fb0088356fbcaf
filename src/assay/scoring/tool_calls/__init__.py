"""Function calls in responses: reading them from text, and comparing them with the expected calls."""
