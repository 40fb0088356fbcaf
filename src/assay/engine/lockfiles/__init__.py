"""Lockfiles: what a score depends on, in a readable file, and what differs from it now."""
