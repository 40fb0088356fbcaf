"""Documents prepared for display: prompts as messages, reasons for failures, statistics over all documents of a task."""
