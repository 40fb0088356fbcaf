"""What to ask: YAML -> TaskSpec -> Document -> Request. Knows nothing of models, scores or storage."""
