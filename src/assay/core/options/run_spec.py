"""The options of a run, each declared once.

The name of a field is the config key and (with dashes or underscores) the flag. Its metadata holds the help text and
the parser. The CLI, the config reader and the reference page are generated from this class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal

from assay.core.errors import AssayError, ErrorGroup, InvalidOption, UnknownName
from assay.core.options.parsing import (
    check_limit,
    parse_arguments,
    parse_batch_size,
    parse_bool,
    parse_bootstrap_draws,
    parse_chat_template,
    parse_dollars,
    parse_factors,
    parse_fraction,
    parse_limit,
    parse_mirror,
    parse_name_list,
    parse_non_negative_integer,
    parse_positive_integer,
    parse_positive_number,
    parse_reasoning_tags,
    parse_samples,
    parse_seconds,
    parse_seed,
    parse_subset,
    parse_tool_mode,
    parse_trace_mode,
)
from assay.core.options.stop_rules import validate_stop_rule

__all__ = ["Option", "RunSpec", "list_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Declaration of one option: help text, parser and command-line form."""

    help: str
    section: str
    parse: Callable[[str], Any] = str
    short: str = ""
    metavar: str = "TEXT"
    flag: bool = False
    """Whether it is a switch without a value."""

    const: Any = None
    """The value if the flag is given without one; None means the flag requires a value."""

    repeatable: bool = False
    """Whether it can be given several times or with several values."""

    affects_results: bool = True
    """Whether it can change a prompt, a response or a score. Such options are part of the run id."""

    in_id_when_unset: bool = True
    """Whether its default is part of the run id. False for options added later, so that ids of older runs stay the same."""


def declare_option(default: Any, help: str, section: str, **details: Any) -> Any:
    """Return a field of `RunSpec`. Mutable defaults are copied for each instance."""
    metadata = {"option": Option(help=help, section=section, **details)}
    if isinstance(default, (dict, list)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """All options of a run."""

    model: str = declare_option(
        "embedded", "The model to evaluate; `assay ls models` lists all.", "Model", short="M", metavar="NAME"
    )
    model_args: Mapping[str, Any] = declare_option(
        {},
        "Model arguments: key=value,key=value or JSON.",
        "Model",
        short="a",
        parse=parse_arguments,
        metavar="ARGS",
    )
    batch_size: int | str = declare_option(
        1, "Batch size of a local model, or `auto`.", "Model", short="b", parse=parse_batch_size,
        metavar="N|auto", affects_results=False,
    )  # fmt: skip
    batch_api: bool = declare_option(
        False, "Use the batch API of the service: cheaper, results within a day.", "Model", flag=True,
        affects_results=False,
    )  # fmt: skip
    device: str | None = declare_option(
        None, "Device of a local model: cpu, cuda:0, …", "Model", metavar="DEVICE", affects_results=False
    )
    replicas: int = declare_option(
        1, "Number of parallel copies of a local model, on Ray.", "Model", parse=parse_positive_integer,
        metavar="N", affects_results=False,
    )  # fmt: skip
    ray: str | None = declare_option(
        None, "Ray cluster for replicas: HOST:PORT or `auto` (default: start a local one).", "Model",
        metavar="ADDRESS", affects_results=False,
    )  # fmt: skip
    replica_resources: Mapping[str, Any] = declare_option(
        {}, "Resources per replica: gpu=1,cpu=4.", "Model", parse=parse_arguments,
        metavar="ARGS", affects_results=False,
    )  # fmt: skip
    rpm: float | None = declare_option(
        None, "Maximum requests per minute, for all models on one server together.", "Model", parse=parse_positive_number,
        metavar="N", affects_results=False,
    )  # fmt: skip
    tpm: float | None = declare_option(
        None, "Maximum tokens per minute, for all models on one server together.", "Model", parse=parse_positive_number,
        metavar="N", affects_results=False,
    )  # fmt: skip
    max_retry_wait: float = declare_option(
        300.0, "Longest delay in seconds that a server can ask for with Retry-After before the next try.", "Model",
        parse=parse_positive_number, metavar="SECONDS", affects_results=False,
    )  # fmt: skip
    gen_kwargs: Mapping[str, Any] = declare_option(
        {},
        "Generation settings that override those of the task.",
        "Model",
        parse=parse_arguments,
        metavar="ARGS",
    )
    reasoning_effort: str | None = declare_option(
        None,
        "How much a reasoning model reasons: low, medium, high, or another word of the service.",
        "Model",
        metavar="WORD",
        in_id_when_unset=False,
    )
    thinking_budget: int | None = declare_option(
        None,
        "Maximum reasoning tokens of a response, in addition to those of its answer.",
        "Model",
        parse=parse_non_negative_integer,
        metavar="N",
        in_id_when_unset=False,
    )
    include_reasoning: bool | None = declare_option(
        None,
        "Whether a service returns the reasoning: true or false (default: what the service does).",
        "Model",
        parse=parse_bool,
        metavar="BOOL",
        in_id_when_unset=False,
    )
    tool_calls: str = declare_option(
        "auto",
        "How the model gets the tools of a task: native, or as text with calls in json, python or xml (default: native if it supports tools).",
        "Model",
        parse=parse_tool_mode,
        metavar="auto|native|json|python|xml",
        in_id_when_unset=False,
    )
    judge: list[str] = declare_option(
        [],
        "Judge model with its arguments: NAME or NAME,key=value. Repeat the option for a judge panel.",
        "Model",
        parse=lambda text: [text],
        repeatable=True,
        metavar="NAME[,ARGS]",
    )
    judge_args: Mapping[str, Any] = declare_option(
        {}, "Arguments for all judges: key=value,key=value or JSON.", "Model", parse=parse_arguments,
        metavar="ARGS",
    )  # fmt: skip
    user: list[str] = declare_option(
        [],
        "Model that plays the simulated user of agent tasks: NAME or NAME,key=value.",
        "Model",
        parse=lambda text: [text],
        repeatable=True,
        metavar="NAME[,ARGS]",
        in_id_when_unset=False,
    )
    apply_chat_template: bool | str = declare_option(
        False, "Apply the chat template of the model (or the named one).", "Prompt", parse=parse_chat_template,
        const=True, metavar="[NAME]",
    )  # fmt: skip
    fewshot_as_multiturn: bool | None = declare_option(
        None, "Send few-shot examples as turns of a conversation (default: on with a chat template).", "Prompt",
        parse=parse_bool, const=True, metavar="[BOOL]",
    )  # fmt: skip
    system_instruction: str | None = declare_option(
        None, "System message for every prompt.", "Prompt", metavar="TEXT"
    )
    mc_as_generation: bool = declare_option(
        False, "Ask for the letter of the choice in multiple-choice tasks: for models without log probabilities; scores differ.",
        "Prompt", flag=True,
    )  # fmt: skip
    num_fewshot: int | None = declare_option(
        None,
        "Number of few-shot examples; tasks that set 0 keep 0.",
        "Prompt",
        short="f",
        parse=parse_non_negative_integer,
        metavar="N",
    )
    tasks: list[str] = declare_option(
        ["quickstart"], "Tasks, groups, tags, globs, YAML files or folders.", "Tasks", short="t", parse=parse_name_list,
        repeatable=True, metavar="NAMES",
    )  # fmt: skip
    include_path: list[str] = declare_option(
        [],
        "Additional folders with task files, or a Python file that defines model classes.",
        "Tasks",
        parse=lambda text: [text],
        repeatable=True,
        metavar="DIR",
        affects_results=False,
    )
    data_root: str | None = declare_option(
        None,
        "Folder with datasets, laid out as on the Hugging Face hub; also ASSAY_DATA.",
        "Tasks",
        metavar="DIR",
        affects_results=False,
    )
    mirror: list[str] = declare_option(
        [],
        "Another id or folder of a dataset, used if the dataset cannot be loaded: ID=OTHER; repeatable.",
        "Tasks",
        parse=parse_mirror,
        repeatable=True,
        metavar="ID=OTHER",
        affects_results=False,
    )
    allow_data_outside: bool = declare_option(
        False,
        "Allow data and media files outside the folder of the task, --data_root and the working directory.",
        "Tasks",
        flag=True,
        affects_results=False,
    )
    limit: float | int | None = declare_option(
        None,
        "Evaluate only the first N documents of each task, or this fraction of them.",
        "Tasks",
        short="L",
        parse=parse_limit,
        metavar="N|SHARE",
    )
    offset: int = declare_option(
        0,
        "Skip the first N documents of each task.",
        "Tasks",
        parse=parse_non_negative_integer,
        metavar="N",
    )
    repeats: int | None = declare_option(
        None, "Number of samples per generated response; overrides the task.", "Tasks", parse=parse_positive_integer, metavar="N"
    )  # fmt: skip
    vary: tuple[str, ...] = declare_option(
        (), "Ask every document with several prompts, and report the mean with the spread between them. Vary: order and letters of"
        " choices, few-shot examples (shots), template, delimiter, system.", "Tasks",
        parse=parse_factors, metavar="order,letters,shots,…", in_id_when_unset=False,
    )  # fmt: skip
    variants: int | None = declare_option(
        None, "Number of prompts per document, the unchanged one included (default: 5 with --vary, else those of the task).", "Tasks",
        parse=parse_positive_integer, metavar="N", in_id_when_unset=False,
    )  # fmt: skip
    variant_seed: int = declare_option(
        0, "Seed of the variants that --vary draws.", "Tasks", parse=parse_non_negative_integer, metavar="N",
        in_id_when_unset=False,
    )  # fmt: skip
    samples: Mapping[str, list[int]] | None = declare_option(
        None,
        'Evaluate only these documents: JSON or a file, {"task": [0, 3]}.',
        "Tasks",
        short="E",
        parse=parse_samples,
        metavar="JSON|FILE",
    )
    budget: int | None = declare_option(
        None,
        "Evaluate a random sample of N documents of each task, weighted so that it estimates the score over all; --history chooses"
        " it better.",
        "Tasks",
        parse=parse_positive_integer,
        metavar="N",
        in_id_when_unset=False,
    )
    history: list[str] = declare_option(
        [],
        "Runs of other models (or result files) from which --budget learns which documents to ask.",
        "Tasks",
        parse=parse_name_list,
        repeatable=True,
        metavar="RUNS",
        affects_results=False,
    )
    subset: Mapping[str, Any] | str | None = declare_option(
        None,
        "Evaluate the same weighted subset of documents as this run: its name, or its results file.",
        "Tasks",
        parse=parse_subset,
        metavar="RUN|FILE",
        in_id_when_unset=False,
    )
    metadata: Mapping[str, Any] = declare_option(
        {},
        "Extra metadata for tasks that build their own dataset.",
        "Tasks",
        parse=parse_arguments,
        metavar="ARGS",
    )
    trust_remote_code: bool = declare_option(
        False, "Allow datasets with their own loading code.", "Tasks", flag=True
    )
    confirm_run_unsafe_code: bool = declare_option(
        False, "Allow tasks that execute model-written code.", "Tasks", flag=True
    )
    sandbox: str = declare_option(
        "auto", "Sandbox for model-written code; `auto` is the strongest one available.", "Tasks", metavar="NAME",
        affects_results=False,
    )  # fmt: skip
    i_know: bool = declare_option(
        False, "Accept a sandbox that does not block everything, such as `limits`.", "Tasks", flag=True,
        affects_results=False,
    )  # fmt: skip
    sandbox_args: Mapping[str, Any] = declare_option(
        {}, "Sandbox arguments: key=value,key=value or JSON.", "Tasks", parse=parse_arguments,
        metavar="ARGS", affects_results=False,
    )  # fmt: skip
    workers: int = declare_option(
        0, "Worker processes on Ray for task code, model-written programs and judge replies.", "Tasks",
        parse=parse_non_negative_integer, metavar="N", affects_results=False,
    )  # fmt: skip
    seed: tuple[int | None, ...] = declare_option(
        (0, 1234, 1234, 1234),
        "Random seed, or four seeds: python,numpy,torch,few-shot.",
        "Run",
        parse=parse_seed,
        metavar="N[,N,N,N]",
    )
    reasoning_tags: tuple[tuple[str, str], ...] | None = declare_option(
        None,
        "Remove reasoning between these tags from responses: JSON pairs of tags, or none (default: as the harness of the task does).",
        "Run",
        parse=parse_reasoning_tags,
        metavar="JSON|none",
    )
    process_with_media: bool = declare_option(
        False, "Pass images and audio to `process_results` of lmms-eval tasks.", "Run", flag=True
    )
    bootstrap_iters: int = declare_option(
        100_000,
        "Bootstrap resamples for standard errors without a closed form; 0 for none.",
        "Run",
        parse=parse_non_negative_integer,
        metavar="N",
    )
    bootstrap_draws: Literal["lm_eval", "own"] = declare_option(
        "lm_eval",
        "Bootstrap resampling: lm_eval (identical numbers) or own (much faster).",
        "Run",
        parse=parse_bootstrap_draws,
        metavar="lm_eval|own",
    )
    decontamination_ngrams_path: str | None = declare_option(
        None,
        "Training texts (file or folder): also report scores without contaminated documents.",
        "Run",
        metavar="PATH",
    )
    stop_when: str | None = declare_option(
        None, "Ask in random order and stop at this precision: `ci<=1.0` (points), `gate:RUN>=-1.0`; `METRIC: ci<=1.0` selects the"
        " metric.", "Run",
        parse=validate_stop_rule, metavar="RULE",
    )  # fmt: skip
    max_cost: float | None = declare_option(
        None, "Stop before the run costs more than this, judges included; resume with a higher limit.", "Run",
        parse=parse_dollars, metavar="USD", affects_results=False,
    )  # fmt: skip
    prices: str | None = declare_option(
        None,
        "Price table that overrides the built-in prices.",
        "Run",
        metavar="FILE",
        affects_results=False,
    )
    max_failures: float = declare_option(
        0.01, "Fraction of requests that may fail before the exit code is 1.", "Run", parse=parse_fraction,
        metavar="SHARE", affects_results=False,
    )  # fmt: skip
    retry_failed: bool = declare_option(
        True, "Retry failed requests when a run is resumed.", "Run", parse=parse_bool,
        const=True, metavar="[BOOL]", affects_results=False,
    )  # fmt: skip
    helper_timeout: float = declare_option(
        600.0, "Time limit in seconds for task code, per document (0: no limit).", "Run", parse=parse_seconds,
        metavar="SECONDS", affects_results=False,
    )  # fmt: skip
    media_memory_mb: int = declare_option(
        1024, "Memory in megabytes for images, audio and video decoded ahead of the model.", "Run", parse=parse_non_negative_integer,
        metavar="N", affects_results=False,
    )  # fmt: skip
    predict_only: bool = declare_option(
        False, "Store the responses without scoring them.", "Run", short="x", flag=True
    )
    max_rounds: int = declare_option(
        100, "Maximum number of rounds of a dialogue; longer dialogues fail.", "Run",
        parse=parse_positive_integer, metavar="N", affects_results=False,
    )  # fmt: skip
    agentic_trace_mode: str = declare_option(
        "basic",
        "`full`: include all steps in the answer of an agentic task, not only the last one.",
        "Run",
        parse=parse_trace_mode,
        metavar="basic|full",
    )
    output_path: str | None = declare_option(
        None, "Folder for the run and its result files (default: ./assay-runs, journal only).", "Output", short="o",
        metavar="DIR|FILE.json", affects_results=False,
    )  # fmt: skip
    name: str | None = declare_option(
        None, "Name of the run, in front of its hash (default: the model and the first task).", "Output",
        metavar="TEXT", affects_results=False,
    )  # fmt: skip
    log_samples: bool = declare_option(
        True, "Write samples_<task>.jsonl next to the results.", "Output", short="s", parse=parse_bool, const=True,
        metavar="[BOOL]", affects_results=False,
    )  # fmt: skip
    sink: list[str] = declare_option(
        [], "Report progress to an external tracker: NAME[,key=value]; `assay ls sinks` lists all.", "Output",
        parse=lambda text: [text], repeatable=True, metavar="NAME[,ARGS]", affects_results=False,
    )  # fmt: skip
    use_cache: str | None = declare_option(
        None, "Response cache file (default: in ASSAY_HOME).", "Output", short="c",
        metavar="FILE", affects_results=False,
    )  # fmt: skip
    token_logprobs: bool = declare_option(
        False, "Store the log probability of every token for `assay view`; the journal becomes several times larger.",
        "Output", flag=True, affects_results=False,
    )  # fmt: skip
    keep_media_mb: int = declare_option(
        2048, "Maximum megabytes of images, audio and video stored in the run folder for `assay view`; 0 for none.", "Output",
        parse=parse_non_negative_integer, metavar="N", affects_results=False,
    )  # fmt: skip
    no_cache: bool = declare_option(
        False, "Do not use the shared response cache.", "Output", flag=True, affects_results=False
    )
    refresh: bool = declare_option(
        False, "Ignore stored responses, and replace them.", "Output", flag=True,
        affects_results=False,
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.limit is not None:
            object.__setattr__(self, "limit", check_limit(self.limit))
            if self.samples is not None:
                raise InvalidOption(
                    "`limit` and `samples` cannot be used together", hint="remove one of them"
                )
        if self.offset and self.samples is not None:
            raise InvalidOption("`offset` and `samples` cannot be used together", hint="remove one of them")
        self._check_subset_options()
        if self.stop_when is not None and self.predict_only:
            raise InvalidOption("a stop rule needs scores", where="--stop_when", hint="remove --predict_only")
        if not self.tasks:
            raise InvalidOption("no task selected", where="--tasks", hint="`assay ls tasks` lists all")
        if self.vary and self.variants == 1:
            raise InvalidOption("nothing varies with one variant", where="--variants", hint="use 2 or more")
        if "letters" in self.vary and self.mc_as_generation:
            raise InvalidOption(
                "the letters of --mc_as_generation cannot vary", where="--vary", hint="leave out `letters`"
            )
        if self.fewshot_as_multiturn and not self.apply_chat_template:
            raise InvalidOption(
                "sending few-shot examples as turns requires a chat template",
                where="--fewshot_as_multiturn",
                hint="add --apply_chat_template",
            )

    def _check_subset_options(self) -> None:
        """Check that at most one option selects documents."""
        if self.history and self.budget is None:
            raise InvalidOption(
                "`history` has no effect without `budget`", where="--history", hint="add --budget N"
            )
        if self.budget is not None and self.budget < 2:
            raise InvalidOption("a budget needs at least two documents", where="--budget")
        chosen = [name for name in ("budget", "subset") if getattr(self, name) is not None]
        if not chosen:
            return
        others = [
            name
            for name in ("subset", "limit", "offset", "samples", "stop_when", "decontamination_ngrams_path")
            if getattr(self, name) and name != chosen[0]
        ]
        if others:
            raise InvalidOption(
                f"`{chosen[0]}` and `{others[0]}` cannot be used together", hint="remove one of them"
            )

    @property
    def multiturn(self) -> bool:
        """Whether few-shot examples are sent as turns: by default if there is a chat template."""
        return (
            bool(self.apply_chat_template) if self.fewshot_as_multiturn is None else self.fewshot_as_multiturn
        )

    @classmethod
    def of(
        cls, settings: Mapping[str, Any], *, where: str = "", places: Mapping[str, str] | None = None
    ) -> RunSpec:
        """Build from a config file or keyword arguments. Strings are parsed as on the command line."""
        return cls(**cls.read(settings, where=where, places=places))

    @classmethod
    def read(
        cls, settings: Mapping[str, Any], *, where: str = "", places: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Parse and validate the values of some options. `places` are the places (`file:line`) of options in a file.

        Raises:
            ErrorGroup: Several options are unknown or have invalid values.
        """
        known = {item.name: item for item in fields(cls)}
        values: dict[str, Any] = {}
        problems: list[AssayError] = []
        for name, value in settings.items():
            key = name.replace("-", "_")
            place = (places or {}).get(name, "")
            try:
                if key not in known:
                    raise UnknownName.of("option", name, sorted(known), where=place or where, ls="options")
                values[key] = _parse_setting(known[key], value, where)
            except InvalidOption as error:
                problems.append(
                    InvalidOption(error.what, where=f"{place}, {name}", hint=error.hint) if place else error
                )
            except UnknownName as error:
                problems.append(error)
        if problems:
            raise problems[0] if len(problems) == 1 else ErrorGroup(problems)
        return values

    def shape(self) -> dict[str, Any]:
        """Return the options that affect prompts, responses and scores. The run id is computed from them."""
        return {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if item.metadata["option"].affects_results
            and (item.metadata["option"].in_id_when_unset or getattr(self, item.name) != item.default)
        }


def _parse_setting(item: Field[Any], value: Any, where: str) -> Any:
    """Parse a value from a config file or a keyword argument as a flag would be."""
    details: Option = item.metadata["option"]
    if value is None:
        return item.default_factory() if callable(item.default_factory) else item.default
    try:
        return _validate_value(item.name, details, value)
    except InvalidOption as error:
        raise InvalidOption(error.what, where=error.where or where or item.name, hint=error.hint) from None


def _validate_value(name: str, details: Option, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        if name == "seed":
            return parse_seed(",".join(str(seed) for seed in value))
        if details.parse is parse_reasoning_tags:
            return parse_reasoning_tags(value)
        if details.repeatable:
            return [item for entry in value for item in details.parse(str(entry))]
        if details.parse is parse_factors:
            return parse_factors(",".join(map(str, value)))
    elif isinstance(value, Mapping):
        if details.parse in (parse_arguments, parse_samples, parse_subset):
            return value
    elif isinstance(value, bool):
        if details.flag or details.const is not None or details.parse is parse_bool:
            return value
    elif isinstance(value, str):
        return parse_bool(value) if details.flag else details.parse(value)
    elif isinstance(value, (int, float)) and not details.flag and not details.repeatable:
        return details.parse(str(value))
    raise InvalidOption(
        f"invalid value for `{name}`: {value!r}",
        hint=f"expected: {details.metavar}" if not details.flag else "true or false",
    )


def list_options() -> list[tuple[str, Any, Option]]:
    """Return (name, default, declaration) of every option, for the CLI, the config reader and the docs."""
    rows = []
    for item in fields(RunSpec):
        default = item.default_factory() if callable(item.default_factory) else item.default
        rows.append((item.name, default, item.metadata["option"]))
    return rows
