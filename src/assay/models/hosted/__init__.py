"""Hosted services with their own APIs: Anthropic, Gemini, and LiteLLM for others."""
