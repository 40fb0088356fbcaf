"""Agents: loops in which a model calls tools, talks to a simulated user and changes an environment."""
