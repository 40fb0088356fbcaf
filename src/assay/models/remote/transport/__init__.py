"""Addresses, connections and the HTTP client."""
