"""External agents: programs with an agent loop of their own, whose model is behind a bridge."""
