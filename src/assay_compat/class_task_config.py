"""The `config` object of class tasks, with lm_eval's defaults."""

from __future__ import annotations

from typing import Any

from assay.tasks.files.task_loader import TASK_KEYS

__all__ = ["TaskConfig"]

_DEFAULTS: dict[str, Any] = {
    "description": "",
    "fewshot_delimiter": "\n\n",
    "output_type": "generate_until",
    "repeats": 1,
    "should_decontaminate": False,
    "target_delimiter": " ",
    "unsafe_code": False,
}


class TaskConfig(dict[str, Any]):
    """A mapping with attribute access. Unset task keys have lm_eval's default or None.

    >>> config = TaskConfig(task="squad", num_fewshot=2)
    >>> config.num_fewshot, config["task"], config.gen_prefix
    (2, 'squad', None)
    """

    def __init__(self, given: dict[str, Any] | None = None, **more: Any) -> None:
        super().__init__({**(given or {}), **more})
        if self.output_type == "generate_until":
            until = [self.fewshot_delimiter]
            default = {"temperature": 0.0, "do_sample": False, "max_gen_toks": 256, "until": until}
            self.setdefault("generation_kwargs", default)

    def __missing__(self, key: str) -> Any:
        if key in TASK_KEYS:
            return _DEFAULTS.get(key)
        raise KeyError(key)

    def __getattr__(self, key: str) -> Any:
        if key in self or key in TASK_KEYS:
            return self[key]
        raise AttributeError(key)

    def __setattr__(self, key: str, value: Any) -> None:
        self[key] = value

    def to_dict(self, keep_callable: bool = False) -> dict[str, Any]:
        """Return the keys that are set; functions as strings unless `keep_callable`."""
        return {
            key: value if keep_callable or not callable(value) else str(value)
            for key, value in self.items()
            if value is not None
        }
