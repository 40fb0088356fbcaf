"""`EvaluatorConfig`: the settings of an evaluation as scripts of lm-eval keep them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.options.parsing import parse_arguments
from assay.engine.planning.config_files import read_yaml
from assay_compat.commands.script_api import TaskManager

__all__ = ["EvaluatorConfig"]


@dataclass(slots=True)
class EvaluatorConfig:
    """The settings of an evaluation, with the names and defaults of lm-eval."""

    model: str = "hf"
    model_args: dict[str, Any] = field(default_factory=dict)
    tasks: Any = field(default_factory=list)
    num_fewshot: int | None = None
    batch_size: int | str = 1
    max_batch_size: int | None = None
    device: str | None = "cuda:0"
    limit: float | None = None
    samples: Any = None
    use_cache: str | None = None
    cache_requests: Any = field(default_factory=dict)
    check_integrity: bool = False
    write_out: bool = False
    log_samples: bool = False
    output_path: str | None = None
    predict_only: bool = False
    system_instruction: str | None = None
    apply_chat_template: bool | str = False
    fewshot_as_multiturn: bool | None = None
    show_config: bool = False
    include_path: str | None = None
    gen_kwargs: dict[str, Any] = field(default_factory=dict)
    verbosity: str | None = None
    wandb_args: dict[str, Any] = field(default_factory=dict)
    wandb_config_args: dict[str, Any] = field(default_factory=dict)
    hf_hub_log_args: dict[str, Any] = field(default_factory=dict)
    seed: Any = field(default_factory=lambda: [0, 1234, 1234, 1234])
    trust_remote_code: bool = False
    confirm_run_unsafe_code: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("model_args", "gen_kwargs"):
            value = getattr(self, name)
            setattr(self, name, parse_arguments(value) if isinstance(value, str) else dict(value or {}))

    @classmethod
    def from_config(cls, config_path: str | Path) -> EvaluatorConfig:
        """Read the settings from a YAML file.

        Raises:
            InvalidOption: The file is not readable, or a key is unknown.
        """
        given = read_yaml(Path(config_path), "config file")
        if not isinstance(given, Mapping):
            raise InvalidOption("the config file is not a mapping", where=str(config_path))
        unknown = sorted(set(given) - {one.name for one in fields(cls)})
        if unknown:
            raise InvalidOption(f"unknown key `{unknown[0]}`", where=str(config_path))
        return cls(**given)

    def process_tasks(self, metadata: Mapping[str, Any] | None = None) -> TaskManager:
        """Turn `tasks` into a list of names, with globs expanded, and return the task index."""
        manager = TaskManager(include_path=self.include_path, metadata=metadata or self.metadata)
        listed = self.tasks.split(",") if isinstance(self.tasks, str) else list(self.tasks)
        known = set(manager.all_tasks) if any("*" in str(one) for one in listed) else set()
        names: list[Any] = []
        for one in listed:
            matches = manager.match_tasks([one]) if isinstance(one, str) and "*" in one else []
            names += [match for match in matches if match in known] or [one]
        self.tasks = names
        return manager
