"""How an answer is judged: filters make answers of responses, metrics make verdicts of answers."""
