"""Analyses of finished runs: gates, power, explained differences, judge calibration, benchmark lint."""
