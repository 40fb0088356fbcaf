"""The keyword arguments of `assay.run` and `assay.plan`.

Made by scripts/generate_reference.py from the options in `core/options/run_spec.py`: change them there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from assay.models.function_model import ModelObject
    from assay.tasks.python_task import PythonTask

__all__ = ["RunKeywords"]


class RunKeywords(TypedDict, total=False):
    """The options of a run. Texts are parsed as on the command line."""

    model: str | ModelObject | Callable[..., Any]
    """The model to evaluate; `assay ls models` lists all. A function of a prompt and an object that implements
    `Model` are models, too.
    """

    model_args: Mapping[str, Any] | str
    """Model arguments: key=value,key=value or JSON."""

    batch_size: int | str
    """Batch size of a local model, or `auto`."""

    batch_api: bool
    """Use the batch API of the service: cheaper, results within a day."""

    device: str | None
    """Device of a local model: cpu, cuda:0, …"""

    replicas: int | str
    """Number of parallel copies of a local model, on Ray."""

    ray: str | None
    """Ray cluster for replicas: HOST:PORT or `auto` (default: start a local one)."""

    replica_resources: Mapping[str, Any] | str
    """Resources per replica: gpu=1,cpu=4."""

    rpm: float | str | None
    """Maximum requests per minute, for all models on one server together."""

    tpm: float | str | None
    """Maximum tokens per minute, for all models on one server together."""

    max_retry_wait: float | str
    """Longest delay in seconds that a server can ask for with Retry-After before the next try."""

    gen_kwargs: Mapping[str, Any] | str
    """Generation settings that override those of the task."""

    reasoning_effort: str | None
    """How much a reasoning model reasons: low, medium, high, or another word of the service."""

    thinking_budget: int | str | None
    """Maximum reasoning tokens of a response, in addition to those of its answer."""

    include_reasoning: bool | str | None
    """Whether a service returns the reasoning: true or false (default: what the service does)."""

    tool_calls: str
    """How the model gets the tools of a task: native, or as text with calls in json, python or xml (default:
    native if it supports tools).
    """

    judge: str | ModelObject | Callable[..., Any] | Sequence[str | ModelObject | Callable[..., Any]]
    """Judge model with its arguments: NAME or NAME,key=value. Repeat the option for a judge panel. A function
    of a prompt and an object that implements `Model` are judges, too.
    """

    judge_args: Mapping[str, Any] | str
    """Arguments for all judges: key=value,key=value or JSON."""

    user: str | ModelObject | Callable[..., Any]
    """Model that plays the simulated user of agent tasks: NAME or NAME,key=value."""

    apply_chat_template: bool | str
    """Apply the chat template of the model (or the named one)."""

    fewshot_as_multiturn: bool | str | None
    """Send few-shot examples as turns of a conversation (default: on with a chat template)."""

    system_instruction: str | None
    """System message for every prompt."""

    mc_as_generation: bool
    """Ask for the letter of the choice in multiple-choice tasks: for models without log probabilities; scores
    differ.
    """

    num_fewshot: int | str | None
    """Number of few-shot examples; tasks that set 0 keep 0."""

    tasks: str | PythonTask | Mapping[str, Any] | Sequence[str | PythonTask | Mapping[str, Any]]
    """Tasks, groups, tags, globs, YAML files or folders. Also `assay.Task` objects and dictionaries with the
    keys of a task file.
    """

    include_path: Sequence[str] | str
    """Additional folders with task files, or a Python file that defines model classes."""

    data_root: str | None
    """Folder with datasets, laid out as on the Hugging Face hub; also ASSAY_DATA."""

    mirror: Sequence[str] | str
    """Another id or folder of a dataset, used if the dataset cannot be loaded: ID=OTHER; repeatable."""

    allow_data_outside: bool
    """Allow data and media files outside the folder of the task, --data_root and the working directory."""

    limit: float | int | str | None
    """Evaluate only the first N documents of each task, or this fraction of them."""

    offset: int | str
    """Skip the first N documents of each task."""

    repeats: int | str | None
    """Number of samples per generated response; overrides the task."""

    vary: tuple[str, ...] | str
    """Ask every document with several prompts, and report the mean with the spread between them. Vary: order
    and letters of choices, few-shot examples (shots), template, delimiter, system.
    """

    variants: int | str | None
    """Number of prompts per document, the unchanged one included (default: 5 with --vary, else those of the
    task).
    """

    variant_seed: int | str
    """Seed of the variants that --vary draws."""

    samples: Mapping[str, Sequence[int]] | str | None
    """Evaluate only these documents: JSON or a file, {"task": [0, 3]}."""

    budget: int | str | None
    """Evaluate a random sample of N documents of each task, weighted so that it estimates the score over all;
    --history chooses it better.
    """

    history: Sequence[str] | str
    """Runs of other models (or result files) from which --budget learns which documents to ask."""

    subset: Mapping[str, Any] | str | None
    """Evaluate the same weighted subset of documents as this run: its name, or its results file."""

    metadata: Mapping[str, Any] | str
    """Extra metadata for tasks that build their own dataset."""

    trust_remote_code: bool
    """Allow datasets with their own loading code."""

    confirm_run_unsafe_code: bool
    """Allow tasks that execute model-written code."""

    sandbox: str
    """Sandbox for model-written code; `auto` is the strongest one available."""

    i_know: bool
    """Accept a sandbox that does not block everything, such as `limits`."""

    sandbox_args: Mapping[str, Any] | str
    """Sandbox arguments: key=value,key=value or JSON."""

    workers: int | str
    """Worker processes on Ray for task code, model-written programs and judge replies."""

    seed: int | Sequence[int | None] | str
    """Random seed, or four seeds: python,numpy,torch,few-shot."""

    reasoning_tags: Sequence[Sequence[str]] | str | None
    """Remove reasoning between these tags from responses: JSON pairs of tags, or none (default: as the harness
    of the task does).
    """

    process_with_media: bool
    """Pass images and audio to `process_results` of lmms-eval tasks."""

    bootstrap_iters: int | str
    """Bootstrap resamples for standard errors without a closed form; 0 for none."""

    bootstrap_draws: Literal["lm_eval", "own"]
    """Bootstrap resampling: lm_eval (identical numbers) or own (much faster)."""

    decontamination_ngrams_path: str | None
    """Training texts (file or folder): also report scores without contaminated documents."""

    stop_when: str | None
    """Ask in random order and stop at this precision: `ci<=1.0` (points), `gate:RUN>=-1.0`; `METRIC: ci<=1.0`
    selects the metric.
    """

    max_cost: float | str | None
    """Stop before the run costs more than this, judges included; resume with a higher limit."""

    prices: str | None
    """Price table that overrides the built-in prices."""

    max_failures: float | str
    """Fraction of requests that may fail before the exit code is 1."""

    retry_failed: bool
    """Retry failed requests when a run is resumed."""

    helper_timeout: float | str
    """Time limit in seconds for task code, per document (0: no limit)."""

    media_memory_mb: int | str
    """Memory in megabytes for images, audio and video decoded ahead of the model."""

    predict_only: bool
    """Store the responses without scoring them."""

    max_rounds: int | str
    """Maximum number of rounds of a dialogue; longer dialogues fail."""

    agentic_trace_mode: str
    """`full`: include all steps in the answer of an agentic task, not only the last one."""

    output_path: str | None
    """Folder for the run and its result files (default: ./assay-runs, journal only)."""

    name: str | None
    """Name of the run, in front of its hash (default: the model and the first task)."""

    log_samples: bool
    """Write samples_<task>.jsonl next to the results."""

    sink: Sequence[str] | str
    """Report progress to an external tracker: NAME[,key=value]; `assay ls sinks` lists all."""

    use_cache: str | None
    """Response cache file (default: in ASSAY_HOME)."""

    token_logprobs: bool
    """Store the log probability of every token for `assay view`; the journal becomes several times larger."""

    keep_media_mb: int | str
    """Maximum megabytes of images, audio and video stored in the run folder for `assay view`; 0 for none."""

    no_cache: bool
    """Do not use the shared response cache."""

    refresh: bool
    """Ignore stored responses, and replace them."""
