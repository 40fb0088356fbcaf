"""Metrics of Hugging Face's `evaluate` hub, without the hub: the same numbers from packages that are installed.

Task files ask for them with `hf_evaluate: true`, helper files with `evaluate.load("rouge")`. Both come here. A name
that is not served here is asked of the real `evaluate` package, which may download a script and run it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

__all__ = ["SERVED", "Measure", "load"]

_HERE = "assay.scoring.hub"

SERVED: Mapping[str, str] = {
    "accuracy": f"{_HERE}.classes:accuracy",
    "bertscore": f"{_HERE}.embeddings:bertscore",
    "bleu": f"{_HERE}.bleu:bleu",
    "cer": f"{_HERE}.edits:cer",
    "chrf": f"{_HERE}.translation:chrf",
    "code_eval": f"{_HERE}.code:code_eval",
    "exact_match": f"{_HERE}.classes:exact_match",
    "f1": f"{_HERE}.classes:f1",
    "matthews_correlation": f"{_HERE}.classes:matthews_correlation",
    "precision": f"{_HERE}.classes:precision",
    "recall": f"{_HERE}.classes:recall",
    "rouge": f"{_HERE}.rouge:rouge",
    "sacrebleu": f"{_HERE}.translation:sacrebleu",
    "squad": f"{_HERE}.squad:squad",
    "squad_v2": f"{_HERE}.squad:squad_v2",
    "ter": f"{_HERE}.translation:ter",
    "wer": f"{_HERE}.edits:wer",
}
"""Where each served metric is computed."""

NEEDS: Mapping[str, tuple[str, str]] = {
    "accuracy": ("sklearn", "scikit-learn"),
    "bertscore": ("bert_score", "bert-score"),
    "bleurt": ("bleurt", "git+https://github.com/google-research/bleurt.git"),
    "chrf": ("sacrebleu", "sacrebleu"),
    "f1": ("sklearn", "scikit-learn"),
    "matthews_correlation": ("sklearn", "scikit-learn"),
    "precision": ("sklearn", "scikit-learn"),
    "recall": ("sklearn", "scikit-learn"),
    "rouge": ("rouge_score", "rouge-score"),
    "sacrebleu": ("sacrebleu", "sacrebleu"),
    "ter": ("sacrebleu", "sacrebleu"),
}
"""The module a metric needs, and what to install for it."""


class Measure:
    """A loaded metric, called as `evaluate` calls it.

    >>> load("exact_match").compute(predictions=["a", "b"], references=["a", "c"])
    {'exact_match': 0.5}
    """

    def __init__(self, name: str, function: Callable[..., Any], **defaults: Any) -> None:
        self.name = name
        self._function = function
        self._defaults = defaults
        self._predictions: list[Any] = []
        self._references: list[Any] = []

    def add(self, *, prediction: Any, reference: Any) -> None:
        """Keep one pair for the next `compute`."""
        self.add_batch(predictions=[prediction], references=[reference])

    def add_batch(self, *, predictions: Any, references: Any) -> None:
        """Keep some pairs for the next `compute`."""
        self._predictions += list(predictions)
        self._references += list(references)

    def compute(self, *, predictions: Any = None, references: Any = None, **settings: Any) -> Any:
        """The metric over these pairs and those kept before.

        Raises:
            ValueError: Not as many predictions as references.
        """
        self.add_batch(
            predictions=() if predictions is None else predictions,
            references=() if references is None else references,
        )
        given, expected = self._predictions, self._references
        self._predictions, self._references = [], []
        if len(given) != len(expected):
            raise ValueError(f"`{self.name}`: {len(given)} predictions, {len(expected)} references")
        return self._function(predictions=given, references=expected, **{**self._defaults, **settings})


def load(name: str, config_name: str | None = None, *, real: Callable[..., Any] | None = None) -> Any:
    """The metric of a name; `real` is the `evaluate` package's own way to load the names not served here.

    Raises:
        ModuleNotFoundError: The package the metric needs is not installed.
    """
    module, package = NEEDS.get(name, ("", ""))
    if module and find_spec(module) is None:
        raise ModuleNotFoundError(f"the metric `{name}` needs `{module}`: pip install {package}", name=module)
    if name in SERVED:
        home, _, attribute = SERVED[name].partition(":")
        return Measure(name, getattr(import_module(home), attribute))
    if real is None:
        raise ModuleNotFoundError(
            f"the metric `{name}` is not served by Assay and the package `evaluate` is not installed",
            name="evaluate",
        )
    return real(name, config_name)
