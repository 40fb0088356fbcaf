"""Standard errors, bootstraps and confidence intervals, of one score and of repeated answers."""
