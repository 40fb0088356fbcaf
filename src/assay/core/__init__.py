"""Shared types: frozen records, ports, errors, the registry, fingerprints. Standard library only."""
