"""Where a model object of another harness comes from: a class with its arguments, or an object that a script made."""

from __future__ import annotations

import inspect
import json
import random
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption, MissingPackage
from assay.models.file_digests import hash_file, hash_folder
from assay.user_code.random_state import draw_names

__all__ = ["ClassSource", "GlobalRandomState", "ObjectSource"]

_CHECKPOINT_FILES = ("*.json", "*.safetensors", "*.bin", "*.gguf", "*.model", "*.jinja", "*.txt")
_CHECKPOINT_KEYS = (
    "pretrained",
    "path",
    "model_path",
    "model_name_or_path",
    "model",
    "tokenizer",
    "peft",
    "delta",
)


class GlobalRandomState:
    """The global random generators as a model sees them: the harness seeds them once, before it loads the model."""

    def __init__(self, seeds: Sequence[int | None] | None) -> None:
        self._seeds = list(seeds[:3]) if seeds else None
        self._states: list[Any] | None = None
        self._seeded: list[Any] | None = None
        self._loaded: tuple[Any, Any] | None = None

    @contextmanager
    def apply(self) -> Iterator[None]:
        """Set the generators to the state of the model, and restore those of the process afterwards."""
        if self._seeds is None:
            yield
            return
        before = _read_states()
        self._seed() if self._states is None else _write_states(self._states)
        try:
            yield
        finally:
            self._states = _read_states()
            _write_states(before)

    def receive(self, states: tuple[Any, Any]) -> None:
        """Receive the generators of Python and NumPy as the loading of the tasks left them."""
        self._loaded = states

    def start_requests(self, names: int) -> None:
        """Do what the harness does between the loading of the model and the first request: load the tasks.

        Without the states after that, or if the model itself has drawn, only the lookups of `names` names are known.
        """
        if self._seeds is None:
            return
        with self.apply():
            if self._loaded is not None and _is_same(_read_states(), self._seeded):
                random.setstate(self._loaded[0])
                sys.modules["numpy"].random.set_state(self._loaded[1])
            else:
                draw_names(names)

    def _seed(self) -> None:
        python, numpy, torch = self._seeds or (None, None, None)
        if python is not None:
            random.seed(python)
        if numpy is not None:
            sys.modules["numpy"].random.seed(numpy)
        if torch is not None and "torch" in sys.modules:
            sys.modules["torch"].manual_seed(torch)
        self._seeded = _read_states()


def _read_states() -> list[Any]:
    import numpy as np

    torch: Any = sys.modules.get("torch")
    return [random.getstate(), np.random.get_state(), None if torch is None else torch.random.get_rng_state()]


def _is_same(states: list[Any], others: list[Any] | None) -> bool:
    """Whether the generators of Python and NumPy are in the same states."""
    if others is None or states[0] != others[0]:
        return False
    return all(
        bool((one == other).all()) if hasattr(one, "all") else one == other
        for one, other in zip(states[1], others[1], strict=True)
    )


def _write_states(states: list[Any]) -> None:
    import numpy as np

    random.setstate(states[0])
    np.random.set_state(states[1])
    if states[2] is not None:
        sys.modules["torch"].random.set_rng_state(states[2])


@dataclass(frozen=True, kw_only=True)
class ClassSource:
    """A model class of another harness, and the arguments to create it with."""

    name: str
    """The name in `--model`, without the harness."""

    harness: str
    model_class: type
    arguments: Mapping[str, Any]
    batch_size: int | str | None = None
    device: str | None = None

    @property
    def title(self) -> str:
        """The name in tables: `lm_eval/hf`."""
        return f"{self.harness}/{self.name}"

    def create(self) -> Any:
        """Create the model as its harness does."""
        common = {"batch_size": self.batch_size, "max_batch_size": None, "device": self.device}
        given = {key: value for key, value in common.items() if value is not None}
        create: Any = getattr(self.model_class, "create_from_arg_obj", None)
        try:
            if create is not None:
                return create(dict(self.arguments), given)
            return self.model_class(**self.arguments, **given)
        except ModuleNotFoundError as error:
            raise MissingPackage.of(
                error.name or str(error), f"the model `{self.title}`", where="--model"
            ) from None
        except TypeError as error:
            raise InvalidOption(
                f"the model `{self.title}` does not take these arguments: {error}",
                where="--model_args",
            ) from error

    def identify(self) -> dict[str, str]:
        """Return the class, its source or the version of its package, the arguments and the files they name."""
        module = self.model_class.__module__
        identity = {
            "name": f"{self.harness}/{self.name}",
            "class": f"{module}.{self.model_class.__qualname__}",
        }
        if module.startswith(f"{self.harness}."):
            identity["package"] = find_version(self.harness)
        else:
            identity["source"] = hash_file(Path(inspect.getfile(self.model_class)))
        identity["arguments"] = json.dumps(dict(self.arguments), sort_keys=True, default=str)
        for key in _CHECKPOINT_KEYS:
            value = self.arguments.get(key)
            if isinstance(value, str) and Path(value).is_dir():
                identity[f"{key} files"] = hash_folder(Path(value), _CHECKPOINT_FILES)
        return identity


@dataclass(frozen=True)
class ObjectSource:
    """A model object that a script made. Its contents are unknown, so its identity is unique."""

    model: Any
    key: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def title(self) -> str:
        return type(self.model).__name__

    @property
    def model_class(self) -> type:
        return type(self.model)

    @property
    def batch_size(self) -> Any:
        return getattr(self.model, "batch_size", 1)

    def create(self) -> Any:
        return self.model

    def identify(self) -> dict[str, str]:
        return {"name": self.title, "object": self.key}


def find_version(package: str) -> str:
    """Return the version of an installed package; empty if it is not installed as a distribution."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
