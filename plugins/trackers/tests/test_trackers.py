"""The sinks with the real packages, on this machine: Weights & Biases offline, an MLflow folder, a trackio folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from tests.making import make_model, write_task

import assay
from assay.core.errors import MissingPackage
from assay.viewer.sinks.dispatcher import open_sinks

pytestmark = pytest.mark.filterwarnings("ignore")  # the packages cause warnings


@pytest.fixture
def sums(workspace: Path) -> str:
    return str(write_task(workspace))


@pytest.mark.services
def test_wandb_gets_scores(sums: str, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(workspace))
    assay.run(model=make_model(), tasks=[sums], sink=["wandb,project=evals"]).close()
    (kept,) = workspace.glob("wandb/offline-run-*/run-*.wandb")
    content = kept.read_bytes()
    assert b"sums/exact_match" in content and b"evals" in content


@pytest.mark.parametrize(
    ("offline", "active", "ends"), [(True, None, 1), (True, "another run", 0), (False, None, 0)]
)
def test_wandb_ends_its_process_to_complete_an_offline_run_unless_another_run_needs_it(
    offline: bool, active: str | None, ends: int, sums: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = MagicMock()
    service.init.return_value.offline = offline
    service.setup.return_value.most_recent_active_run = active
    monkeypatch.setattr("assay.viewer.sinks.tracker_metrics.import_module", lambda _: service)
    assay.run(model=make_model(), tasks=[sums], sink=["wandb"]).close()
    assert service.finish.call_count == 1
    assert service.teardown.call_count == ends


@pytest.mark.services
def test_mlflow_gets_parameters_scores_and_results(
    sums: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (workspace / "mlruns").as_uri()
    assay.run(model=make_model(), tasks=[sums], sink=[f"mlflow,experiment=evals,tracking_uri={uri}"]).close()
    client = mlflow.tracking.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("evals").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["sums/exact_match"] == 1.0 and run.data.params["model"] == "scripted"
    assert [one.path for one in client.list_artifacts(run.info.run_id)] == ["results.json"]


@pytest.mark.services
def test_trackio_gets_scores(sums: str, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(workspace / "trackio"))
    monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
    assay.run(model=make_model(), tasks=[sums], sink=["trackio,project=evals"]).close()
    kept = [path for path in (workspace / "trackio").rglob("*") if path.is_file()]
    assert any(b"sums/exact_match" in path.read_bytes() for path in kept), kept


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_a_missing_package_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> Any:
        raise ImportError(f"No module named {module!r}")

    monkeypatch.setattr("assay.viewer.sinks.tracker_metrics.import_module", missing)
    with pytest.raises(MissingPackage, match="the sink needs the package"):
        open_sinks([name])


@pytest.mark.services
def test_mlflow_stores_a_finished_run_with_its_samples(
    sums: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    from assay.viewer.exports.formats import export

    run = assay.run(model=make_model(), tasks=[sums])
    files = export(run, "mlflow", [], workspace / "mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = mlflow.tracking.MlflowClient((workspace / "mlruns").as_uri())
    (stored,) = client.search_runs([client.get_experiment_by_name("assay").experiment_id])
    assert (stored.info.run_name, stored.info.status) == (run.id, "FINISHED")
    assert stored.data.metrics["sums/exact_match"] == 1.0
    names = [one.path for one in client.list_artifacts(stored.info.run_id, "lm_eval/scripted")]
    assert len(names) == 2 and "samples_sums_" in names[1] and "results_" in names[0]
    assert any(file.name.startswith("samples_sums_") for file in files)
    run.close()


@pytest.mark.services
def test_wandb_stores_a_finished_run_with_its_samples(sums: str, workspace: Path) -> None:
    from assay.viewer.exports.formats import export

    run = assay.run(model=make_model(), tasks=[sums])
    files = export(run, "wandb", [], workspace / "offline")
    (log,) = (file for file in files if file.suffix == ".wandb")
    content = log.read_bytes()
    assert b"sums/exact_match" in content and f"assay-{run.id}".encode() in content
    staged = [file for file in files if file.parent.name == "staging"]
    assert any(b'"filtered_resps"' in file.read_bytes() for file in staged), "the samples are with the run"
    run.close()
