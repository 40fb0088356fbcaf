"""Request payloads and reply parsing for OpenAI's protocols."""
