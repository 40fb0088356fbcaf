"""`assay bench`: measure how fast a model answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.cli.arguments import json_option, print_json, split_names
from assay.cli.options import OptionsCommand, add_run_options, build_run_spec
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.engine.benchmarking.measurement import ModelBenchmark, WorkloadResult

__all__ = ["command"]

_MODEL_OPTIONS = (
    "model model_args batch_size device replicas ray replica_resources rpm tpm max_retry_wait include_path seed"
).split()

_HELP = """Measure the speed of a model.

\b
Examples:
  assay bench model --model embedded
  assay bench model --model hf --model_args pretrained=FOLDER,dtype=bfloat16 --batch_size auto
"""

_MODEL_HELP = """Measure the throughput of a model with synthetic requests, and how far it is from the ideal.

The requests take the path of a run: `generate` has prompts and answers of unequal lengths, `likelihood` multiple
choice with a shared prefix, `rolling` whole texts, `chat` conversations (remote models). By default, everything that the
model supports is measured. Responses are not stored, and nothing is read from the response cache.

The ideal of a transformers model (`hf`) is the measured rate of matrix products on its device, divided by 2 operations
per parameter and token; the share is the model FLOPs utilisation. The ideal of a remote model is the largest number of
requests in flight, divided by the latency of a single call. `–` means unknown.

A remote service may charge for the requests.

\b
Examples:
  assay bench model --model embedded --requests 16
  assay bench model --model hf --model_args pretrained=FOLDER,dtype=bfloat16 --batch_size auto --requests 512
  assay bench model --model openai --model_args model=NAME,base_url=http://localhost:8000/v1,num_concurrent=64 --json
"""


@click.group("bench", help=_HELP)
def command() -> None:
    """Run the command; its help text is above."""


@command.command("model", cls=OptionsCommand, help=_MODEL_HELP)
@click.option(
    "--workloads",
    multiple=True,
    metavar="NAMES",
    help="Workloads to measure: generate, likelihood, rolling, chat. [default: those that the model supports]",
)
@click.option(
    "--requests",
    type=click.IntRange(1),
    default=32,
    metavar="N",
    help="Requests per workload. [default: 32]",
)
@click.option(
    "--prompt_words",
    type=click.IntRange(1),
    default=200,
    metavar="N",
    help="Mean number of words of a prompt. [default: 200]",
)
@click.option(
    "--output_tokens",
    type=click.IntRange(1),
    default=64,
    metavar="N",
    help="Mean limit of generated tokens. [default: 64]",
)
@json_option
def model_command(
    workloads: tuple[str, ...],
    requests: int,
    prompt_words: int,
    output_tokens: int,
    as_json: bool,
    config: Path | None,
    **values: Any,
) -> None:
    """Run the command; its help text is above."""
    import asyncio

    from assay.engine.benchmarking.measurement import benchmark_model
    from assay.engine.benchmarking.workloads import WorkloadSize
    from assay.engine.planning.setup.model_setup import make_run_model
    from assay.engine.results.run_facts import register_secrets

    spec = build_run_spec(values, config)
    register_secrets(spec)
    size = WorkloadSize(requests=requests, prompt_words=prompt_words, output_tokens=output_tokens)
    found = asyncio.run(
        benchmark_model(
            make_run_model(spec), size, workloads=split_names(workloads), on_start=_announce_workload
        )
    )
    if as_json:
        print_json(found.as_json())
    else:
        _print(found)


add_run_options(model_command, _MODEL_OPTIONS)


def _announce_workload(workload: str) -> None:
    click.echo(f"measuring {workload} …", err=True)


def _print(found: ModelBenchmark) -> None:
    from assay.cli.tables import echo_wrapped, print_table
    from assay.viewer.number_format import format_bytes, format_count
    from assay.viewer.text_tables import Column, TextTable

    click.secho(escape_control_characters(found.model), bold=True)
    limits = found.limits
    if limits is not None:
        rate = limits.matmul_flops_per_s
        speed = "–" if rate is None else f"{rate / 1e12:.3g} TFLOP/s"
        click.echo(
            f"{format_count(limits.parameters)} parameters, {limits.dtype} on {limits.device}; matrix products: {speed}"
        )
    click.echo(f"opened in {found.open_seconds:.1f} s")
    right = [
        "requests/s",
        "input tokens/s",
        "output tokens/s",
        "busy",
        *(("p50", "p90", "p99", "in flight") if found.is_remote else ()),
        "ideal",
        "of ideal",
        "peak memory",
    ]
    has_device = any(one.peak_device_bytes is not None for one in found.workloads)
    if has_device:
        right.append("peak device memory")
    folds = {"p50": 3, "p90": 4, "p99": 4, "in flight": 3, "peak memory": 2, "peak device memory": 1}
    table = TextTable(
        columns=[
            Column(title="workload"),
            *(
                Column(title=title, justify="right", fold=folds.get(title, 0), folded=f"{title} {{}}")
                for title in right
            ),
        ]
    )
    for one in found.workloads:
        cells = _format_row(one, is_remote=found.is_remote)
        if has_device:
            cells.append("–" if one.peak_device_bytes is None else format_bytes(one.peak_device_bytes))
        table.add_row(*cells)
    print_table(table)
    for note in found.notes:
        echo_wrapped(escape_control_characters(f"note: {note}"))


def _format_row(one: WorkloadResult, *, is_remote: bool) -> list[str]:
    from assay.viewer.number_format import format_bytes

    cells = [
        one.workload,
        _format_rate(one.requests_per_s),
        _format_rate(one.input_tokens_per_s),
        _format_rate(one.output_tokens_per_s),
        _format_share(one.busy_share),
    ]
    if is_remote:
        latency = one.latency
        cells += (
            ["–"] * 3
            if latency is None
            else [f"{value * 1000:.0f} ms" for value in (latency.p50, latency.p90, latency.p99)]
        )
        cells.append("–" if one.max_in_flight is None else str(one.max_in_flight))
    ideal = one.ideal
    cells.append("–" if ideal is None else f"{_format_rate(ideal.rate)} {ideal.unit}")
    cells.append(_format_share(None if ideal is None else ideal.share))
    cells.append("–" if one.peak_memory_bytes is None else format_bytes(one.peak_memory_bytes))
    return cells


def _format_rate(rate: float | None) -> str:
    from assay.viewer.number_format import format_count

    return "–" if rate is None else format_count(rate) if rate >= 100 else f"{rate:.3g}"


def _format_share(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"
