"""What the verdicts mean: aggregation, standard errors, groups. Pure functions on numbers."""
