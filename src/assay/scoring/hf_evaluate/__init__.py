"""Local implementations of metrics of Hugging Face's `evaluate` hub, with the same numbers.

Task files request them with `hf_evaluate: true`, helper files with `evaluate.load("rouge")`. The `evaluate` package loads
other metrics, and may download and run a script for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

__all__ = ["LOCAL_METRICS", "LoadedMetric", "load_metric"]

_PACKAGE = "assay.scoring.hf_evaluate"

LOCAL_METRICS: Mapping[str, str] = {
    "accuracy": f"{_PACKAGE}.classification:accuracy",
    "bertscore": f"{_PACKAGE}.bertscore:bertscore",
    "bleu": f"{_PACKAGE}.bleu:bleu",
    "cer": f"{_PACKAGE}.error_rates:cer",
    "chrf": f"{_PACKAGE}.translation:chrf",
    "code_eval": f"{_PACKAGE}.code_eval:code_eval",
    "exact_match": f"{_PACKAGE}.classification:exact_match",
    "f1": f"{_PACKAGE}.classification:f1",
    "matthews_correlation": f"{_PACKAGE}.classification:matthews_correlation",
    "precision": f"{_PACKAGE}.classification:precision",
    "recall": f"{_PACKAGE}.classification:recall",
    "rouge": f"{_PACKAGE}.rouge:rouge",
    "sacrebleu": f"{_PACKAGE}.translation:sacrebleu",
    "squad": f"{_PACKAGE}.squad:squad",
    "squad_v2": f"{_PACKAGE}.squad:squad_v2",
    "ter": f"{_PACKAGE}.translation:ter",
    "wer": f"{_PACKAGE}.error_rates:wer",
}
"""The function of each local metric."""

REQUIRED_PACKAGES: Mapping[str, tuple[str, str]] = {
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
"""The module that a metric needs, and the package to install."""


class LoadedMetric:
    """A metric with the interface of `evaluate`.

    >>> load_metric("exact_match").compute(predictions=["a", "b"], references=["a", "c"])
    {'exact_match': 0.5}
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self._function = function
        self._predictions: list[Any] = []
        self._references: list[Any] = []
        self._seed = _current_numpy_seed()

    def add(self, *, prediction: Any, reference: Any) -> None:
        """Add one pair for the next `compute`."""
        self.add_batch(predictions=[prediction], references=[reference])

    def add_batch(self, *, predictions: Any, references: Any) -> None:
        """Add pairs for the next `compute`."""
        self._predictions += list(predictions)
        self._references += list(references)

    def compute(self, *, predictions: Any = None, references: Any = None, **settings: Any) -> Any:
        """Compute the metric over these pairs and the pairs added before.

        Raises:
            ValueError: The numbers of predictions and references differ.
        """
        self.add_batch(
            predictions=() if predictions is None else predictions,
            references=() if references is None else references,
        )
        given, expected = self._predictions, self._references
        self._predictions, self._references = [], []
        if len(given) != len(expected):
            raise ValueError(f"`{self.name}`: {len(given)} predictions, {len(expected)} references")
        with _use_numpy_seed(self._seed):
            return self._function(predictions=given, references=expected, **settings)


def _current_numpy_seed() -> int:
    """Return the seed that `evaluate` uses: the state of NumPy's generator when the metric is loaded."""
    import numpy

    state: Any = numpy.random.get_state(legacy=True)
    keys, place = state[1], state[2]
    return int(keys[place] if place < len(keys) else keys[0])


@contextmanager
def _use_numpy_seed(seed: int) -> Iterator[None]:
    """Seed NumPy's global generator and restore its state afterwards."""
    import numpy

    before = numpy.random.get_state()
    numpy.random.seed(seed)
    try:
        yield
    finally:
        numpy.random.set_state(before)


def load_metric(name: str, config_name: str | None = None, *, real: Callable[..., Any] | None = None) -> Any:
    """Load a metric. `real` is `evaluate.load`, for metrics without a local implementation.

    Raises:
        ModuleNotFoundError: A package that the metric needs is not installed.
    """
    module, package = REQUIRED_PACKAGES.get(name, ("", ""))
    if module and find_spec(module) is None:
        raise ModuleNotFoundError(f"the metric `{name}` needs `{module}`: pip install {package}", name=module)
    if name in LOCAL_METRICS:
        target, _, attribute = LOCAL_METRICS[name].partition(":")
        return LoadedMetric(name, getattr(import_module(target), attribute))
    if real is None:
        raise ModuleNotFoundError(
            f"Assay does not implement the metric `{name}`, and the package `evaluate` is not installed",
            name="evaluate",
        )
    return real(name, config_name)
