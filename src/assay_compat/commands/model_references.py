"""Model classes of lm-eval as scripts name them, for environments without lm-eval: `HFLM(pretrained=…)`, `VLLM(…)`.

An object stands for a model of Assay and its arguments. The model loads when the evaluation starts.
"""

from __future__ import annotations

from typing import Any, ClassVar

from assay.core.errors import InvalidOption

__all__ = ["HFLM", "VLLM", "ModelReference"]

_OPTIONS = frozenset(("batch_size", "device"))


class ModelReference:
    """A model by name, with arguments."""

    name: ClassVar[str] = ""

    def __init__(self, pretrained: Any = None, **arguments: Any) -> None:
        if pretrained is not None and not isinstance(pretrained, str):
            raise InvalidOption(
                f"`pretrained` must be the name or folder of a checkpoint, not {type(pretrained).__name__}",
                where=type(self).__name__,
                hint="save the model with `save_pretrained` and pass the folder",
            )
        given = {"pretrained": pretrained, **arguments}
        self.options = {key: given.pop(key) for key in tuple(given) if key in _OPTIONS}
        """Arguments that are options of a run."""

        self.arguments = {key: value for key, value in given.items() if value is not None}

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: Any = None) -> ModelReference:
        """Create the model from `key=value,key=value`."""
        from assay.core.options.parsing import parse_arguments

        return cls(**{**parse_arguments(arg_string), **(additional_config or {})})


class HFLM(ModelReference):
    """A checkpoint that transformers loads: `--model hf`."""

    name = "hf"


class VLLM(ModelReference):
    """A checkpoint that vLLM loads: `--model vllm`."""

    name = "vllm"
