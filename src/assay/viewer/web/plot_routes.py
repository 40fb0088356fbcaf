"""Routes of the plots of a run, and of two runs."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from assay.store.documents.measurements import TaskMeasurements, read_measurements
from assay.viewer.plots.records import Plot
from assay.viewer.plots.run_plots import build_cost_plot
from assay.viewer.web.comparison_routes import read_run_keys, sort_baseline_first
from assay.viewer.web.pages.comparison import read_signatures
from assay.viewer.web.pages.plots import build_comparison_plots_context, build_run_plots_context
from assay.viewer.web.rendering import render
from assay.viewer.web.run_catalog import RunCatalog
from assay.viewer.web.run_routes import JOB_WAIT_S, render_loading_page

__all__ = ["routes"]

_NO_STORE = {"cache-control": "no-store"}


def _show_run_plots(request: Request) -> Response:
    catalog: RunCatalog = request.app.state.catalog
    key = request.path_params["key"]
    catalog.folder(key)

    def measure() -> tuple[dict[str, TaskMeasurements], Plot]:
        with catalog.run(key) as run:
            found = read_measurements(run)
            return found, build_cost_plot(run, found)

    job = request.app.state.jobs.get(
        ("measurements", key), read_signatures(catalog, [key]), measure, wait_s=JOB_WAIT_S, stale=True
    )
    if not job.ready:
        return render_loading_page("Preparing the plots", "Reading all responses and scores of the run.", key)
    measured, cost = job.result()
    given = request.query_params
    metric = given.get("metric", "0")
    with catalog.run(key) as run:
        context = build_run_plots_context(
            run,
            key,
            measured,
            cost,
            task=given.get("task", ""),
            metric=int(metric) if metric.isdecimal() and len(metric) < 3 else 0,
        )
    return HTMLResponse(render("plots.html", page="plots", **context), headers=_NO_STORE)


def _show_comparison_plots(request: Request) -> Response:
    catalog: RunCatalog = request.app.state.catalog
    given = request.query_params
    entries = request.app.state.entries
    keys = read_run_keys(request)
    if len(keys) < 2:
        raise HTTPException(404, "Select two runs to compare.")
    started = {
        key: entries.get(key.partition("@")[0], catalog.folder(key.partition("@")[0])).started for key in keys
    }
    keys = sort_baseline_first(
        keys,
        {key.partition("@")[0]: moment or 0.0 for key, moment in started.items()},
        given.get("baseline", ""),
    )
    wanted = {name: given.get(name, "") for name in ("against", "task", "metric")}

    def build_context() -> dict[str, Any]:
        return build_comparison_plots_context(catalog, keys, **wanted)

    job = request.app.state.jobs.get(
        ("comparison plots", tuple(keys), *wanted.values()),
        read_signatures(catalog, keys),
        build_context,
        wait_s=JOB_WAIT_S,
        stale=True,
    )
    if not job.ready:
        return render_loading_page("Preparing the plots", "Reading the scores of both runs.", "")
    return HTMLResponse(
        render("plots.html", page="plots", section="compare", **job.result()), headers=_NO_STORE
    )


routes = [Route("/runs/{key}/plots", _show_run_plots), Route("/compare/plots", _show_comparison_plots)]
