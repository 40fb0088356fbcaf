"""Model classes as scripts name them, for environments without lm-eval and lmms-eval: `HFLM(pretrained=…)`, `Qwen2_5_VL(…)`.

An object stands for a model of Assay and its arguments. The model loads when the evaluation starts.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, ClassVar

from assay.core.errors import InvalidOption, MissingPackage

__all__ = [
    "HFLM",
    "VLLM",
    "ModelReference",
    "find_reference",
    "make_reference_class",
    "register_model_modules",
]

_OPTIONS = frozenset(("batch_size", "device"))


class ModelReference:
    """A model by name, with arguments."""

    name: ClassVar[str] = ""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Refuse a subclass of a script that changes more than the arguments: the changes would have no effect.

        Raises:
            MissingPackage: The class overrides methods.
        """
        super().__init_subclass__(**keywords)
        changed = [name for name, value in vars(cls).items() if callable(value) and not name.startswith("__")]
        if cls.__module__ != __name__ and changed:
            raise MissingPackage(
                f"`{cls.__name__}` overrides `{changed[0]}`: subclasses of model classes need the package of the harness",
                where=cls.__module__,
                hint="install lm_eval or lmms_eval instead of the aliases, and run `assay run --model NAME --include_path FILE.py`;"
                " subclasses of `LM` and `TemplateLM` need no package",
            )

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

    def make_model(self) -> Any:
        """Return a model for one evaluation if the arguments contain loaded objects; None if a name describes it."""
        return None


class HFLM(ModelReference):
    """A checkpoint that transformers loads, or a model and a tokenizer that the script loaded: `--model hf`."""

    name = "hf"

    def __init__(self, pretrained: Any = None, backend: str = "default", **arguments: Any) -> None:
        loaded = {"pretrained": pretrained, "tokenizer": arguments.pop("tokenizer", None)}
        self._objects = {
            key: value for key, value in loaded.items() if not isinstance(value, (str, type(None)))
        }
        """The model or the tokenizer, if the script loaded it."""

        names = {key: value for key, value in loaded.items() if key not in self._objects}
        super().__init__(backend=None if backend == "default" else backend, **names, **arguments)
        if self._objects:
            self.make_model()  # wrong arguments are errors where the script gives them

    @property
    def model(self) -> Any:
        """The model that the script loaded; None for a name."""
        return self._objects.get("pretrained")

    @property
    def tokenizer(self) -> Any:
        """The tokenizer that the script loaded, or its name."""
        return self._objects.get("tokenizer", self.arguments.get("tokenizer"))

    def make_model(self) -> Any:
        if not self._objects:
            return None
        from assay.models.hf import HfModel

        return HfModel(**{**self.options, **self.arguments, **self._objects})


class VLLM(ModelReference):
    """A checkpoint that vLLM loads: `--model vllm`."""

    name = "vllm"


def find_reference(name: str, arguments: dict[str, Any]) -> ModelReference | None:
    """Return the model of `simple_evaluate(model="hf", model_args={"pretrained": model, …})` if a value is a loaded object."""
    is_loaded = any(
        not isinstance(arguments.get(key), (str, type(None))) for key in ("pretrained", "tokenizer")
    )
    return HFLM(**arguments) if is_loaded and name in ("hf", "hf-auto", "huggingface") else None


def make_reference_class(name: str) -> type[ModelReference]:
    """Return the class of a model that Assay has: `get_model("hf")` of lm-eval.

    Raises:
        UnknownName: There is no model with this name.
    """
    from assay.models import MODELS

    if name in ("hf", "hf-auto", "huggingface"):
        return HFLM
    MODELS.get(name, where="get_model")
    return type("Model", (ModelReference,), {"name": name, "__doc__": f"The model `{name}`, run by Assay."})


def register_model_modules(package: str) -> None:
    """Register `PACKAGE.NAME` for each preset, a module with the model class of that name: `qwen2_5_vl.Qwen2_5_VL`."""
    from assay.models.presets import PRESETS

    for name in PRESETS:
        module = ModuleType(
            f"{package}.{name}", f"`{package}.{name}`: the import location of its model class."
        )
        module.__dict__["__getattr__"] = _ClassLookup(name)
        sys.modules[module.__name__] = module


class _ClassLookup:
    """Returns the model class of a module for each name that can be one; lmms-eval's spellings follow no rule."""

    def __init__(self, model: str) -> None:
        self._model = model

    def __call__(self, attribute: str) -> type[ModelReference]:
        if not attribute[:1].isupper():
            raise AttributeError(f"the module of the model `{self._model}` has no attribute `{attribute}`")
        about = f"The model `{self._model}`, run by Assay."
        return type(attribute, (ModelReference,), {"name": self._model, "__doc__": about})
