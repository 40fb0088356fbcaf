"""The files of new plugins. `@name@` and `@Name@` stand for the plugin's name."""

from __future__ import annotations

__all__ = ["FILTER", "METRIC", "MODEL"]


def _project(kind: str, thing: str) -> str:
    return f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "assay-@name@"
version = "0.1.0"
description = "The {kind} `@name@` for Assay."
requires-python = ">=3.11"
dependencies = ["assay"]

[project.entry-points."assay.{kind}s"]
@name@ = "assay_@name@:{thing}"

[tool.hatch.build.targets.wheel]
packages = ["assay_@name@"]
"""


MODEL = {
    "pyproject.toml": _project("model", "@Name@"),
    "assay_@name@/__init__.py": '''"""The model `@name@`: put your own where the comments say so."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from assay import Failure, Generate, Response, Traits


class @Name@:
    """Repeats the last word of the prompt, until you replace it."""

    def __init__(self, *, path: str = "") -> None:
        self._path = path  # only remember: `--model_args path=…` comes here, and work waits for `open`

    @property
    def name(self) -> str:
        return "@name@"

    @property
    def traits(self) -> Traits:
        return Traits(abilities=frozenset({"generate"}), window=64)

    async def identify(self) -> Mapping[str, str]:
        """Everything that changes an answer: otherwise the kept answers of another model are taken for these."""
        return {"name": self.name, "version": "1", "path": self._path}

    async def open(self) -> None:
        """Load weights or connect; import heavy packages here."""

    async def answer(self, window: Sequence) -> AsyncIterator:
        """One outcome per request, each as soon as it is known."""
        for request in window:
            if not isinstance(request, Generate) or request.prompt.has_media:
                yield Failure(request_id=request.id, kind="model error", message="only texts are written")
                continue
            words = request.prompt.text.split()
            text = words[-1] if words else ""  # your model writes here
            for stop in request.settings.stop:
                text = text.split(stop)[0]
            yield Response(request_id=request.id, value=text, finish="stop")

    async def close(self) -> None:
        """Let go of what `open` took."""
''',
    "tests/test_@name@.py": """import assay
import pytest
from assay.testing import MODEL_CHECKS
from assay_@name@ import @Name@


@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(check):
    check(@Name@)


def test_it_answers_a_task(tmp_path):
    run = assay.run(model=@Name@(), tasks=["quickstart_addition"], limit=3, output_path=str(tmp_path))
    assert run.outcomes("quickstart_addition").get("failed", 0) == 0
""",
}

METRIC = {
    "pyproject.toml": _project("metric", "METRIC"),
    "assay_@name@/__init__.py": '''"""The metric `@name@`."""

from __future__ import annotations

from assay.scoring.metrics import Metric


def @name@(*, references, predictions):
    """What one document is worth: the share of the reference's letters that stand where they should, until you replace it."""
    reference, prediction = str(references[0]), str(predictions[0])
    if not reference:
        return float(not prediction)
    return sum(a == b for a, b in zip(reference, prediction)) / max(len(reference), len(prediction))


METRIC = Metric(name="@name@", function=@name@, aggregation="mean", higher_is_better=True)
''',
    "tests/test_@name@.py": """from assay.testing import check_metric
from assay_@name@ import METRIC, @name@


def test_it_keeps_the_contract():
    check_metric(METRIC, right=("four", "four"), wrong=("four", "five"))


def test_what_it_is_worth():
    assert @name@(references=["four"], predictions=["four"]) == 1.0
    assert @name@(references=["four"], predictions=["fort"]) == 0.5
""",
}

FILTER = {
    "pyproject.toml": _project("filter", "@Name@"),
    "assay_@name@/__init__.py": '''"""The filter `@name@`."""

from __future__ import annotations


class @Name@:
    """Keeps the last line of what was said, until you replace it."""

    per_document = True  # an answer depends on its own document alone, so it is filtered as soon as it is in

    def __init__(self, strip: bool = True) -> None:
        self._strip = strip  # `- {function: @name@, strip: false}` in a task file comes here

    def apply(self, responses, documents):
        """One entry for each document; each holds one value for each repeat."""
        return [[self._last(value) for value in values] for values in responses]

    def _last(self, value):
        lines = value.rstrip("\\n").split("\\n")
        return lines[-1].strip() if self._strip else lines[-1]
''',
    "tests/test_@name@.py": """from assay.testing import check_filter
from assay_@name@ import @Name@


def test_it_keeps_the_contract():
    check_filter(@Name@)


def test_what_it_does():
    assert @Name@().apply([["first\\nlast "]], [{}]) == [["last"]]
""",
}
