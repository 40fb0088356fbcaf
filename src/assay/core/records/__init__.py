"""The records that pass between packages: documents, messages, requests, responses, verdicts, specs."""
