"""Address and limits of an evaluation server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

__all__ = ["ServerArgs"]

_MAX_PORT = 65535


@dataclass
class ServerArgs:
    """Address and limits of an evaluation server; the fields are those of lmms-eval."""

    host: str = "localhost"
    """Address to listen on; `localhost` is 127.0.0.1."""

    port: int = 8000
    """Port to listen on."""

    max_completed_jobs: int = 100
    """Number of finished jobs that the server remembers."""

    temp_dir_prefix: str = "lmms_eval_"
    """Start of the names of the folders for results of jobs without `output_dir`."""

    def __post_init__(self) -> None:
        if not isinstance(self.port, int) or not 1 <= self.port <= _MAX_PORT:
            raise ValueError(f"the port must be an integer from 1 to {_MAX_PORT}, got {self.port!r}")
        if not isinstance(self.max_completed_jobs, int) or self.max_completed_jobs < 1:
            raise ValueError(
                f"max_completed_jobs must be a positive integer, got {self.max_completed_jobs!r}"
            )

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> ServerArgs:
        """Create the arguments from a dictionary; other keys have no effect."""
        return cls(**{one.name: d[one.name] for one in fields(cls) if one.name in d})

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments as a dictionary."""
        return asdict(self)
