"""Damaged files: the damage is detected, and the intact responses are used."""

from __future__ import annotations

import logging
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_choices, write_task

import assay
from assay.core.errors import AssayError, CorruptStore
from assay.store.journal.journal import JOURNAL_FILE
from assay.store.runs.maintenance import repair_run

MANY = [{"question": f"What is {n} + 1?", "answer": str(n + 1 if n % 3 else n)} for n in range(120)]
SEEDS = range(4)


def answers(request: Any) -> Any:
    """Answer mostly correctly, sometimes with texts longer than a database page."""
    from assay.core.records.responses import LogProbability

    if hasattr(request, "continuation"):
        return LogProbability(-1.0 - len(request.continuation) / 7 - request.document, False)
    number = int(request.prompt.text.partition("What is ")[2].partition(" +")[0])
    return str(number + 1) if number % 40 else "I do not know. " * 700


class DamageFixture:
    """A finished run to copy, damage and resume, without the shared cache."""

    def __init__(self, folder: Path) -> None:
        self.tasks = [str(write_task(folder, "sums", MANY)), str(write_choices(folder, rows=60))]
        self.folder = folder
        self.first = self.run("first")
        self.results = self.first.results
        self.first.close()

    def run(self, output: str, **options: Any) -> assay.Run:
        self.model = make_model(answers)
        return assay.run(
            model=self.model,
            tasks=self.tasks,
            output_path=output,
            log_samples=False,
            no_cache=True,
            **options,
        )

    def copy(self, name: str) -> Path:
        shutil.copytree(self.first.folder, self.folder / name / self.first.id)
        return self.folder / name / self.first.id


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("damaged")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield DamageFixture(folder)


@pytest.fixture(autouse=True)
def working_folder(runner: DamageFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runner.folder)


def flip_bytes(path: Path, seed: int) -> None:
    """Change one to four bytes anywhere in a file."""
    draw = random.Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice([1, 1, 2, 4])):
        data[draw.randrange(len(data))] ^= draw.randrange(1, 256)
    path.write_bytes(data)


def truncate(path: Path, seed: int) -> None:
    """Truncate a file."""
    data = path.read_bytes()
    path.write_bytes(data[: random.Random(seed).randrange(1, len(data))])


def zero_range(path: Path, seed: int) -> None:
    """Overwrite a range of a file with zeros, like a lost sector."""
    draw = random.Random(seed)
    data = bytearray(path.read_bytes())
    start, length = draw.randrange(len(data)), draw.choice([512, 4096, 20_000])
    data[start : start + length] = bytes(len(data[start : start + length]))
    path.write_bytes(data)


DAMAGES = {"flip": flip_bytes, "truncate": truncate, "zero": zero_range}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_run_is_detected_and_resumes_with_the_same_results(
    runner: DamageFixture, damage: Any, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    folder = runner.copy(f"{damage.__name__}-{seed}")
    before = (folder / JOURNAL_FILE).read_bytes()
    damage(folder / JOURNAL_FILE, seed)
    if (folder / JOURNAL_FILE).read_bytes() == before:
        pytest.skip("the bytes were zeros already")
    with pytest.raises(CorruptStore, match="damaged") as caught:
        print(assay.open_run(folder).results)
    assert "assay runs repair" in caught.value.hint
    with caplog.at_level(logging.WARNING):
        again = runner.run(folder.parent.name)
    assert again.folder.resolve() == folder.resolve()
    assert "repaired the damaged" in caplog.text
    assert again.results == runner.results
    assert again.complete
    again.close()
    assert list(folder.glob("journal.damaged-*.sqlite")), "the damaged file is kept"


def test_most_answers_survive_a_damaged_page(runner: DamageFixture) -> None:
    folder = runner.copy("one-page")
    data = bytearray((folder / JOURNAL_FILE).read_bytes())
    page = len(data) // 4096 // 2
    data[page * 4096 : (page + 1) * 4096] = b"\xa5" * 4096
    (folder / JOURNAL_FILE).write_bytes(data)
    again = runner.run("one-page")
    assert again.results == runner.results
    again.close()
    assert len(runner.model.asked) < 100, "of 240 requests"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_journal_without_checksums_never_raises_a_traceback(
    runner: DamageFixture, damage: Any, seed: int
) -> None:
    folder = runner.copy(f"unsealed-{damage.__name__}-{seed}")
    damage(folder / JOURNAL_FILE, seed)
    (folder / "journal.sums").unlink()
    run = assay.open_run(folder)
    try:
        list(run.samples("sums"))
        assert run.results.keys() <= {"sums", "choices"}
    except AssayError as error:
        refused = str(error)
    else:
        refused = "damaged, and not noticed"
    finally:
        run.close()
    assert "damaged" in refused or "of another program" in refused


@pytest.mark.parametrize("seed", SEEDS)
def test_a_repaired_run_can_be_resumed_without_its_journal(runner: DamageFixture, seed: int) -> None:
    folder = runner.copy(f"repaired-{seed}")
    DAMAGES[["flip", "truncate", "zero"][seed % 3]](folder / JOURNAL_FILE, seed + 100)
    salvaged = repair_run(folder)
    if salvaged is None:
        pytest.skip("the bytes were zeros already")
    assert repair_run(folder) is None, "once is enough"
    model = make_model(answers)
    again = assay.resume(folder, model=model, no_cache=True)
    assert again.results == runner.results
    assert len(model.asked) <= 240 - salvaged.responses
    again.close()


def test_a_file_of_random_bytes_is_repaired_to_an_empty_run(runner: DamageFixture) -> None:
    folder = runner.copy("noise")
    (folder / JOURNAL_FILE).write_bytes(random.Random(1).randbytes(50_000))
    salvaged = repair_run(folder)
    assert salvaged is not None
    assert salvaged.responses == 0
    model = make_model(answers)
    again = assay.resume(folder, model=model, no_cache=True)
    assert again.results == runner.results
    again.close()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_cache_gives_no_wrong_answer_and_is_rebuilt(
    runner: DamageFixture, damage: Any, seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = tmp_path / "cache.sqlite"
    options: dict[str, Any] = {"tasks": runner.tasks, "log_samples": False, "use_cache": str(cache)}
    assay.run(model=make_model(answers), output_path=str(tmp_path / "one"), **options).close()
    damage(cache, seed)
    two = assay.run(model=make_model(answers), output_path=str(tmp_path / "two"), **options)
    assert two.results == runner.results
    two.close()
    model = make_model(answers)
    three = assay.run(model=model, output_path=str(tmp_path / "three"), **options)
    assert three.results == runner.results
    three.close()
