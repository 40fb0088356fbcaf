"""What is remembered: the append-only journal of a run, the response cache shared between runs."""
