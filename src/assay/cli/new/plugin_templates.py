"""Templates for the files of a new plugin. `@name@` and `@Name@` are replaced by its name."""

from __future__ import annotations

__all__ = ["FILTER_FILES", "METRIC_FILES", "MODEL_FILES"]


def _render_pyproject(kind: str, thing: str) -> str:
    return f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "assay-@name@"
version = "0.1.0"
description = "The {kind} `@name@` for Assay."
requires-python = ">=3.11"
dependencies = ["assay-harness"]

[project.entry-points."assay.{kind}s"]
@name@ = "assay_@name@:{thing}"

[tool.hatch.build.targets.wheel]
packages = ["assay_@name@"]
"""


MODEL_FILES = {
    "pyproject.toml": _render_pyproject("model", "@Name@"),
    "assay_@name@/__init__.py": '''"""The model `@name@`: replace the marked lines with your own model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from assay import Failure, Generate, Response, Traits


class @Name@:
    """Answers with the last word of the prompt. Replace this with your model."""

    def __init__(self, *, path: str = "") -> None:
        self._path = path  # set by `--model_args path=…`; do the work in `open`

    @property
    def name(self) -> str:
        return "@name@"

    @property
    def traits(self) -> Traits:
        return Traits(abilities=frozenset({"generate"}), window=64)

    async def identify(self) -> Mapping[str, str]:
        """Return everything that affects answers; the response cache uses it as a key."""
        return {"name": self.name, "version": "1", "path": self._path}

    async def open(self) -> None:
        """Load weights or connect; import heavy packages here."""

    async def answer(self, window: Sequence) -> AsyncIterator:
        """Yield one outcome per request, in any order."""
        for request in window:
            if not isinstance(request, Generate) or request.prompt.has_media:
                yield Failure(request_id=request.id, kind="model error", message="only text generation is supported")
                continue
            words = request.prompt.text.split()
            text = words[-1] if words else ""  # call your model here
            for stop in request.settings.stop:
                text = text.split(stop)[0]
            yield Response(request_id=request.id, value=text, finish="stop")

    async def close(self) -> None:
        """Release what `open` acquired."""
''',
    "tests/test_@name@.py": """import assay
import pytest
from assay.testing import MODEL_CHECKS
from assay_@name@ import @Name@


@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
def test_contract(check):
    check(@Name@)


def test_answers_a_task(tmp_path):
    run = assay.run(model=@Name@(), tasks=["quickstart_addition"], limit=3, output_path=str(tmp_path))
    assert run.outcomes("quickstart_addition").get("failed", 0) == 0
""",
}

METRIC_FILES = {
    "pyproject.toml": _render_pyproject("metric", "METRIC"),
    "assay_@name@/__init__.py": '''"""The metric `@name@`."""

from __future__ import annotations

from assay.scoring.metrics import Metric


def @name@(*, references, predictions):
    """Return the fraction of characters that match the reference. Replace this with your metric."""
    reference, prediction = str(references[0]), str(predictions[0])
    if not reference:
        return float(not prediction)
    return sum(a == b for a, b in zip(reference, prediction)) / max(len(reference), len(prediction))


METRIC = Metric(name="@name@", function=@name@, aggregation="mean", higher_is_better=True)
''',
    "tests/test_@name@.py": """from assay.testing import check_metric
from assay_@name@ import METRIC, @name@


def test_contract():
    check_metric(METRIC, right=("four", "four"), wrong=("four", "five"))


def test_values():
    assert @name@(references=["four"], predictions=["four"]) == 1.0
    assert @name@(references=["four"], predictions=["fort"]) == 0.5
""",
}

FILTER_FILES = {
    "pyproject.toml": _render_pyproject("filter", "@Name@"),
    "assay_@name@/__init__.py": '''"""The filter `@name@`."""

from __future__ import annotations


class @Name@:
    """Keeps the last line of the response. Replace this with your filter."""

    per_document = True  # each response is filtered independently, as soon as it arrives

    def __init__(self, strip: bool = True) -> None:
        self._strip = strip  # set by `- {function: @name@, strip: false}` in a task file

    def apply(self, responses, documents):
        """Filter the responses: one list per document, with one value per repeat."""
        return [[self._last_line(value) for value in values] for values in responses]

    def _last_line(self, value):
        lines = value.rstrip("\\n").split("\\n")
        return lines[-1].strip() if self._strip else lines[-1]
''',
    "tests/test_@name@.py": """from assay.testing import check_filter
from assay_@name@ import @Name@


def test_contract():
    check_filter(@Name@)


def test_keeps_the_last_line():
    assert @Name@().apply([["first\\nlast "]], [{}]) == [["last"]]
""",
}
