"""Probes that find out what a server supports, and a cache of their results."""
