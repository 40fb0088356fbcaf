"""What was asked for: every option of a run, declared once.

A field's name is the config key and (with dashes or underscores) the flag; its metadata holds the help text
and how a text becomes a value. The CLI, the config file and the reference page are made from this class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from typing import Any, Literal

from assay.core.errors import BadOption, UnknownName
from assay.core.option import Option, option
from assay.core.parsing import (
    check_limit,
    parse_amount,
    parse_arguments,
    parse_batch_size,
    parse_count,
    parse_dollars,
    parse_draws,
    parse_limit,
    parse_names,
    parse_positive,
    parse_samples,
    parse_seconds,
    parse_seed,
    parse_share,
    parse_switch,
    parse_tags,
    parse_template,
    parse_trace_mode,
)
from assay.core.stop_rules import parse_stop_rule

__all__ = ["Option", "RunSpec", "run_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """Everything a run was asked to do."""

    model: str = option(
        "embedded", "The model to ask; `assay ls models` shows all.", "Model", short="M", metavar="NAME"
    )
    model_args: Mapping[str, Any] = option(
        {},
        "Arguments of the model: key=value,key=value or JSON.",
        "Model",
        short="a",
        parse=parse_arguments,
        metavar="ARGS",
    )
    batch_size: int | str = option(
        1, "Requests a local model computes together, or `auto`.", "Model", short="b", parse=parse_batch_size,
        metavar="N|auto", shapes_result=False,
    )  # fmt: skip
    batch_api: bool = option(
        False, "Ask through the service's batch API: cheaper, and ready within a day.", "Model", flag=True,
        shapes_result=False,
    )  # fmt: skip
    device: str | None = option(
        None, "Where a local model runs: cpu, cuda:0, …", "Model", metavar="DEVICE", shapes_result=False
    )
    replicas: int = option(
        1, "Copies of a local model that answer at the same time, on Ray.", "Model", parse=parse_positive,
        metavar="N", shapes_result=False,
    )  # fmt: skip
    ray: str | None = option(
        None, "Ray cluster for them: HOST:PORT or `auto`; without it one is started here.", "Model",
        metavar="ADDRESS", shapes_result=False,
    )  # fmt: skip
    replica_resources: Mapping[str, Any] = option(
        {}, "What each replica takes of its machine: gpu=1,cpu=4.", "Model", parse=parse_arguments,
        metavar="ARGS", shapes_result=False,
    )  # fmt: skip
    rpm: float | None = option(
        None, "Requests per minute, for all models on one server together.", "Model", parse=parse_amount,
        metavar="N", shapes_result=False,
    )  # fmt: skip
    tpm: float | None = option(
        None, "Tokens per minute, for all models on one server together.", "Model", parse=parse_amount,
        metavar="N", shapes_result=False,
    )  # fmt: skip
    gen_kwargs: Mapping[str, Any] = option(
        {}, "Generation settings that override the task's.", "Model", parse=parse_arguments, metavar="ARGS"
    )
    judge: list[str] = option(
        [],
        "Model that judges answers, with its arguments: NAME or NAME,key=value; several times for a jury.",
        "Model",
        parse=lambda text: [text],
        many=True,
        metavar="NAME[,ARGS]",
    )
    judge_args: Mapping[str, Any] = option(
        {}, "Arguments every judge gets: key=value,key=value or JSON.", "Model", parse=parse_arguments,
        metavar="ARGS",
    )  # fmt: skip
    apply_chat_template: bool | str = option(
        False, "Send chat messages through the model's template (or the named one).", "Prompt", parse=parse_template,
        bare=True, metavar="[NAME]",
    )  # fmt: skip
    fewshot_as_multiturn: bool | None = option(
        None, "Few-shot examples as turns of a conversation (default: on with a chat template).", "Prompt",
        parse=parse_switch, bare=True, metavar="[BOOL]",
    )  # fmt: skip
    system_instruction: str | None = option(
        None, "System message put before every prompt.", "Prompt", metavar="TEXT"
    )
    mc_as_generation: bool = option(
        False, "Ask multiple-choice tasks for the letter of a choice: another score, for models without log-likelihoods.",
        "Prompt", flag=True,
    )  # fmt: skip
    num_fewshot: int | None = option(
        None,
        "Examples before each question; a task that says 0 keeps 0.",
        "Prompt",
        short="f",
        parse=parse_count,
        metavar="N",
    )
    tasks: list[str] = option(
        ["quickstart"], "Tasks, groups, tags, globs, YAML files or folders.", "Tasks", short="t", parse=parse_names,
        many=True, metavar="NAMES",
    )  # fmt: skip
    include_path: list[str] = option(
        [],
        "Further folders with task files.",
        "Tasks",
        parse=lambda text: [text],
        many=True,
        metavar="DIR",
        shapes_result=False,
    )
    data_root: str | None = option(
        None,
        "Folder with datasets laid out as on the hub; also ASSAY_DATA.",
        "Tasks",
        metavar="DIR",
        shapes_result=False,
    )
    limit: float | int | None = option(
        None,
        "Only the first N documents of each task, or this share of them.",
        "Tasks",
        short="L",
        parse=parse_limit,
        metavar="N|SHARE",
    )
    offset: int = option(
        0, "Leave out this many documents of each task first.", "Tasks", parse=parse_count, metavar="N"
    )
    repeats: int | None = option(
        None, "Ask everything that is generated this often, whatever the task says.", "Tasks", parse=parse_positive, metavar="N"
    )  # fmt: skip
    samples: Mapping[str, list[int]] | None = option(
        None,
        'Only these documents: JSON or a file, {"task": [0, 3]}.',
        "Tasks",
        short="E",
        parse=parse_samples,
        metavar="JSON|FILE",
    )
    metadata: Mapping[str, Any] = option(
        {},
        "Extra metadata handed to tasks that build their own dataset.",
        "Tasks",
        parse=parse_arguments,
        metavar="ARGS",
    )
    trust_remote_code: bool = option(
        False, "Allow datasets that bring their own loading code.", "Tasks", flag=True
    )
    confirm_run_unsafe_code: bool = option(
        False, "Allow tasks that execute code written by the model.", "Tasks", flag=True
    )
    sandbox: str = option(
        "auto", "Where that code runs; `auto` is the strongest that works here.", "Tasks", metavar="NAME",
        shapes_result=False,
    )  # fmt: skip
    sandbox_args: Mapping[str, Any] = option(
        {}, "Arguments of the sandbox: key=value,key=value or JSON.", "Tasks", parse=parse_arguments,
        metavar="ARGS", shapes_result=False,
    )  # fmt: skip
    workers: int = option(
        0, "Processes on Ray for tasks whose own code judges, programs the model wrote, and replies of judges.", "Tasks",
        parse=parse_count, metavar="N", shapes_result=False,
    )  # fmt: skip
    seed: tuple[int | None, ...] = option(
        (0, 1234, 1234, 1234),
        "Seed of all generators, or four: python,numpy,torch,few-shot.",
        "Run",
        parse=parse_seed,
        metavar="N[,N,N,N]",
    )
    reasoning_tags: tuple[tuple[str, str], ...] | None = option(
        None,
        "Cut what a model thinks out of its answers: JSON pairs of tags, or none (default: as the task's harness does).",
        "Run",
        parse=parse_tags,
        metavar="JSON|none",
    )
    process_with_media: bool = option(
        False, "Show pictures and sounds to `process_results` of lmms-eval tasks, too.", "Run", flag=True
    )
    bootstrap_iters: int = option(
        100_000,
        "Resamples for standard errors that have no formula; 0 for none.",
        "Run",
        parse=parse_count,
        metavar="N",
    )
    bootstrap_draws: Literal["lm_eval", "own"] = option(
        "lm_eval",
        "Whose resamples: lm-eval's very own, for equal numbers, or others, found much sooner.",
        "Run",
        parse=parse_draws,
        metavar="lm_eval|own",
    )
    decontamination_ngrams_path: str | None = option(
        None,
        "Training texts (file or folder): report scores without the documents found in them, too.",
        "Run",
        metavar="PATH",
    )
    stop_when: str | None = option(
        None, "Ask in random order and stop when sure enough: `ci<=1.0` (points), `gate:RUN>=-1.0`; `METRIC: ci<=1.0` names what"
        " is watched.", "Run",
        parse=parse_stop_rule, metavar="RULE",
    )  # fmt: skip
    max_cost: float | None = option(
        None, "Stop asking before the run costs more than this, judges included; repeat with more to go on.", "Run",
        parse=parse_dollars, metavar="USD", shapes_result=False,
    )  # fmt: skip
    prices: str | None = option(
        None, "Table of prices that go before those Assay knows.", "Run", metavar="FILE", shapes_result=False
    )
    max_failures: float = option(
        0.01, "The share of requests that may fail before the exit code is 1.", "Run", parse=parse_share,
        metavar="SHARE", shapes_result=False,
    )  # fmt: skip
    retry_failed: bool = option(
        True, "Ask again what failed when a run is continued; `false` takes it as it is.", "Run", parse=parse_switch,
        bare=True, metavar="[BOOL]", shapes_result=False,
    )  # fmt: skip
    helper_timeout: float = option(
        600.0, "Seconds a task's own code may take for one document; 0 for any.", "Run", parse=parse_seconds,
        metavar="SECONDS", shapes_result=False,
    )  # fmt: skip
    media_memory_mb: int = option(
        1024, "Megabytes for pictures, sounds and videos decoded ahead of the model.", "Run", parse=parse_count,
        metavar="N", shapes_result=False,
    )  # fmt: skip
    predict_only: bool = option(False, "Ask, keep the responses, do not score.", "Run", short="x", flag=True)
    max_rounds: int = option(
        100, "Rounds a multi-round dialogue may take; one that would take more fails and says so.", "Run",
        parse=parse_positive, metavar="N", shapes_result=False,
    )  # fmt: skip
    agentic_trace_mode: str = option(
        "basic",
        "`full`: the answer of an agentic task holds every step, not only the last.",
        "Run",
        parse=parse_trace_mode,
        metavar="basic|full",
    )
    output_path: str | None = option(
        None, "Folder for the run and its result files (default ./assay-runs, journal only).", "Output", short="o",
        metavar="DIR|FILE.json", shapes_result=False,
    )  # fmt: skip
    log_samples: bool = option(
        True, "Write samples_<task>.jsonl beside the results.", "Output", short="s", parse=parse_switch, bare=True,
        metavar="[BOOL]", shapes_result=False,
    )  # fmt: skip
    sink: list[str] = option(
        [], "Tell of the run elsewhere as it goes on: NAME[,key=value]; `assay ls sinks` shows all.", "Output",
        parse=lambda text: [text], many=True, metavar="NAME[,ARGS]", shapes_result=False,
    )  # fmt: skip
    use_cache: str | None = option(
        None, "Keep the shared response cache in this file instead of ASSAY_HOME.", "Output", short="c",
        metavar="FILE", shapes_result=False,
    )  # fmt: skip
    token_logprobs: bool = option(
        False, "Keep the log-probability of every token, for `assay view`; the journal becomes several times larger.",
        "Output", flag=True, shapes_result=False,
    )  # fmt: skip
    keep_media_mb: int = option(
        2048, "Megabytes of pictures, sounds and videos kept in the run's folder for `assay view`; 0 for none.", "Output",
        parse=parse_count, metavar="N", shapes_result=False,
    )  # fmt: skip
    no_cache: bool = option(
        False, "Leave the shared response cache alone.", "Output", flag=True, shapes_result=False
    )
    refresh: bool = option(
        False, "Ask again what was answered before, and replace the old answers.", "Output", flag=True,
        shapes_result=False,
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.limit is not None:
            object.__setattr__(self, "limit", check_limit(self.limit))
            if self.samples is not None:
                raise BadOption("`limit` and `samples` cannot be used together", hint="leave one of them out")
        if self.offset and self.samples is not None:
            raise BadOption("`offset` and `samples` cannot be used together", hint="leave one of them out")
        if self.stop_when is not None and self.predict_only:
            raise BadOption("without scores nobody can tell when to stop", where="--stop_when")
        if not self.tasks:
            raise BadOption("no task was named", where="--tasks", hint="`assay ls tasks` shows all")
        if self.fewshot_as_multiturn and not self.apply_chat_template:
            raise BadOption(
                "few-shot examples as turns need a chat template",
                where="--fewshot_as_multiturn",
                hint="add --apply_chat_template",
            )

    @property
    def multiturn(self) -> bool:
        """Few-shot examples as turns: on with a chat template unless switched off."""
        return (
            bool(self.apply_chat_template) if self.fewshot_as_multiturn is None else self.fewshot_as_multiturn
        )

    @classmethod
    def of(cls, settings: Mapping[str, Any], *, where: str = "") -> RunSpec:
        """From a config file or keyword arguments; texts are read as the CLI would read them."""
        return cls(**cls.read(settings, where=where))

    @classmethod
    def read(cls, settings: Mapping[str, Any], *, where: str = "") -> dict[str, Any]:
        """The values of some options, each checked on its own."""
        known = {item.name: item for item in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in settings.items():
            key = name.replace("-", "_")
            if key not in known:
                raise UnknownName.of("option", name, sorted(known), where=where, ls="options")
            values[key] = _read(known[key], value, where)
        return values

    def shape(self) -> dict[str, Any]:
        """The settings that decide prompts, answers and scores: what the run is named by."""
        return {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if item.metadata["option"].shapes_result
        }


def _read(item: Field[Any], value: Any, where: str) -> Any:
    """A value from a config file or a keyword, checked as a flag's text would be."""
    details: Option = item.metadata["option"]
    if value is None:
        return item.default_factory() if callable(item.default_factory) else item.default
    try:
        return _checked(item.name, details, value)
    except BadOption as error:
        raise BadOption(error.what, where=error.where or where or item.name, hint=error.hint) from None


def _checked(name: str, details: Option, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        if name == "seed":
            return parse_seed(",".join(str(one) for one in value))
        if details.parse is parse_tags:
            return parse_tags(value)
        if details.many:
            return [found for entry in value for found in details.parse(str(entry))]
    elif isinstance(value, Mapping):
        if details.parse in (parse_arguments, parse_samples):
            return value
    elif isinstance(value, bool):
        if details.flag or details.bare is not None:
            return value
    elif isinstance(value, str):
        return parse_switch(value) if details.flag else details.parse(value)
    elif isinstance(value, (int, float)) and not details.flag and not details.many:
        return details.parse(str(value))
    raise BadOption(
        f"`{name}` cannot be {value!r}",
        hint=f"expected: {details.metavar}" if not details.flag else "true or false",
    )


def run_options() -> list[tuple[str, Any, Option]]:
    """Every option with its name, default and description: for the CLI, the config reader and the docs."""
    rows = []
    for item in fields(RunSpec):
        default = item.default_factory() if callable(item.default_factory) else item.default
        rows.append((item.name, default, item.metadata["option"]))
    return rows
