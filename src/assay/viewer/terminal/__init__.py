"""What the commands print: live progress, the table of results, the list of runs."""
