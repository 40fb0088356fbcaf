"""Tasks: YAML -> TaskSpec -> Document -> Request. Knows nothing of models, scores or storage.

`files` finds and reads task files, `data` reads datasets, `prompts` renders prompts. `task.Task` combines them.
"""
