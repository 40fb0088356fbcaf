"""Metrics of Hugging Face's `evaluate` hub, without the hub: the same numbers from packages that are installed.

Task files ask for them with `hf_evaluate: true`, helper files with `evaluate.load("rouge")`. Both come here. A name
that is not served here is asked of the real `evaluate` package, which may download a script and run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

__all__ = ["LOCAL_METRICS", "LoadedMetric", "load_metric"]

_HERE = "assay.scoring.hf_evaluate"

LOCAL_METRICS: Mapping[str, str] = {
    "accuracy": f"{_HERE}.classification:accuracy",
    "bertscore": f"{_HERE}.bertscore:bertscore",
    "bleu": f"{_HERE}.bleu:bleu",
    "cer": f"{_HERE}.error_rates:cer",
    "chrf": f"{_HERE}.translation:chrf",
    "code_eval": f"{_HERE}.code_eval:code_eval",
    "exact_match": f"{_HERE}.classification:exact_match",
    "f1": f"{_HERE}.classification:f1",
    "matthews_correlation": f"{_HERE}.classification:matthews_correlation",
    "precision": f"{_HERE}.classification:precision",
    "recall": f"{_HERE}.classification:recall",
    "rouge": f"{_HERE}.rouge:rouge",
    "sacrebleu": f"{_HERE}.translation:sacrebleu",
    "squad": f"{_HERE}.squad:squad",
    "squad_v2": f"{_HERE}.squad:squad_v2",
    "ter": f"{_HERE}.translation:ter",
    "wer": f"{_HERE}.error_rates:wer",
}
"""Where each served metric is computed."""

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
"""The module a metric needs, and what to install for it."""


class LoadedMetric:
    """A loaded metric, called as `evaluate` calls it.

    >>> load("exact_match").compute(predictions=["a", "b"], references=["a", "c"])
    {'exact_match': 0.5}
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self._function = function
        self._predictions: list[Any] = []
        self._references: list[Any] = []
        self._seed = _current_numpy_seed()

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
        with _seeded(self._seed):
            return self._function(predictions=given, references=expected, **settings)


def _current_numpy_seed() -> int:
    """`evaluate`'s rule: a metric that draws does so from where NumPy's generator stood when it was loaded."""
    import numpy

    state: Any = numpy.random.get_state(legacy=True)
    keys, place = state[1], state[2]
    return int(keys[place] if place < len(keys) else keys[0])


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """NumPy's global generator at a seed, and afterwards where it was."""
    import numpy

    before = numpy.random.get_state()
    numpy.random.seed(seed)
    try:
        yield
    finally:
        numpy.random.set_state(before)


def load_metric(name: str, config_name: str | None = None, *, real: Callable[..., Any] | None = None) -> Any:
    """The metric of a name; `real` is the `evaluate` package's own way to load the names not served here.

    Raises:
        ModuleNotFoundError: The package the metric needs is not installed.
    """
    module, package = REQUIRED_PACKAGES.get(name, ("", ""))
    if module and find_spec(module) is None:
        raise ModuleNotFoundError(f"the metric `{name}` needs `{module}`: pip install {package}", name=module)
    if name in LOCAL_METRICS:
        home, _, attribute = LOCAL_METRICS[name].partition(":")
        return LoadedMetric(name, getattr(import_module(home), attribute))
    if real is None:
        raise ModuleNotFoundError(
            f"the metric `{name}` is not served by Assay and the package `evaluate` is not installed",
            name="evaluate",
        )
    return real(name, config_name)
