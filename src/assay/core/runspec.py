"""What was asked for: every option of a run, declared once.

A field's name is the config key and (with dashes or underscores) the flag; its metadata holds the help text
and how a text becomes a value. The CLI, the config file and the reference page are made from this class.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from assay.core.errors import BadOption, UnknownName

__all__ = ["Option", "RunSpec", "parse_arguments", "run_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How one option looks to people."""

    help: str
    section: str
    parse: Callable[[str], Any] = str
    short: str = ""
    metavar: str = "TEXT"
    flag: bool = False
    """A switch without a value."""

    bare: Any = None
    """The value of the flag when it is given without one; None means it needs a value."""

    many: bool = False
    """May be given several times or with several values."""

    shapes_result: bool = True
    """False for options that cannot change a prompt, an answer or a score: they are not part of the run's id."""


def option(default: Any, help: str, section: str, **details: Any) -> Any:
    """A field of RunSpec. Mutable defaults are copied for each instance."""
    metadata = {"option": Option(help=help, section=section, **details)}
    if isinstance(default, (dict, list)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def parse_value(text: str) -> Any:
    """A value as people write it: true, 3, 0.5, [1,2], or text.

    >>> parse_value("true"), parse_value("0.5"), parse_value("a/b")
    (True, 0.5, 'a/b')
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.lower() in ("none", "null"):
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def parse_arguments(text: str) -> dict[str, Any]:
    """`key=value,key=value` or one JSON object.

    >>> parse_arguments("pretrained=a/b,dtype=float32,n=3,stop=[1,2]")
    {'pretrained': 'a/b', 'dtype': 'float32', 'n': 3, 'stop': [1, 2]}
    """
    text = text.strip()
    if not text:
        return {}
    if text.startswith("{"):
        try:
            loaded = json.loads(text)
        except json.JSONDecodeError as error:
            raise BadOption(f"this is not JSON: {error.msg} at character {error.pos}", where=text) from None
        return dict(loaded)
    arguments = {}
    for piece in _split(text):
        key, equals, value = piece.partition("=")
        if not equals or not key.strip():
            raise BadOption(
                f"`{piece}` is not of the form key=value",
                where=text,
                hint="write key=value,key=value, or a JSON object",
            )
        arguments[key.strip()] = parse_value(value.strip())
    return arguments


def _split(text: str) -> list[str]:
    """Split at commas that are not inside brackets or quotes."""
    pieces, depth, quote, start = [], 0, "", 0
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'" and (position == 0 or text[position - 1] in "=,[{( "):
            quote = character
        elif character in "[{(":
            depth += 1
        elif character in ")}]":
            depth -= 1
        elif character == "," and depth <= 0:
            pieces.append(text[start:position])
            start = position + 1
    pieces.append(text[start:])
    return [piece for piece in pieces if piece.strip()]


def parse_limit(text: str) -> float | int | None:
    """A count of documents, or a share of them when below 1.

    >>> parse_limit("10"), parse_limit("0.25")
    (10, 0.25)
    """
    try:
        value = float(text)
    except ValueError:
        raise BadOption(
            f"`{text}` is not a number", where="--limit", hint="a count (100) or a share (0.1)"
        ) from None
    return _checked_limit(value)


def _checked_limit(value: float) -> float | int | None:
    if value == -1:
        return None
    if value <= 0 or (value > 1 and value != int(value)):
        raise BadOption(
            f"{value:g} is neither a count nor a share of documents", where="--limit", hint="100, or 0.1"
        )
    return value if value < 1 else int(value)


def parse_seed(text: str) -> tuple[int | None, ...]:
    """One number for all generators, or four: python, numpy, torch, few-shot.

    >>> parse_seed("7"), parse_seed("0,1234,None,1234")
    ((7, 7, 7, 7), (0, 1234, None, 1234))
    """
    pieces = [piece.strip() for piece in text.split(",")]
    try:
        values = tuple(None if piece.lower() == "none" else int(piece) for piece in pieces)
    except ValueError:
        raise BadOption(
            f"`{text}` is not a seed", where="--seed", hint="one integer, or four: 0,1234,1234,1234"
        ) from None
    if len(values) == 1:
        return values * 4
    if len(values) != 4:
        raise BadOption(
            f"{len(values)} seeds given", where="--seed", hint="one integer, or four: 0,1234,1234,1234"
        )
    return values


def parse_samples(text: str) -> dict[str, list[int]]:
    """`{"task": [0, 3, 7]}` as JSON, or the path of such a file."""
    source = text
    if not text.lstrip().startswith("{"):
        try:
            with open(text, encoding="utf-8") as file:
                source = file.read()
        except OSError as error:
            raise BadOption(f"cannot read `{text}`: {error.strerror}", where="--samples") from None
    try:
        loaded = json.loads(source)
        return {str(task): [int(index) for index in indices] for task, indices in loaded.items()}
    except (ValueError, TypeError, AttributeError):
        raise BadOption(
            "the documents must be given as a JSON object of lists",
            where="--samples",
            hint='{"arc_easy": [0, 3, 7]}',
        ) from None


def parse_batch_size(text: str) -> int | str:
    """A number, `auto` or `auto:N`."""
    if text == "auto" or text.startswith("auto:"):
        return text
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise BadOption(
            f"`{text}` is not a batch size", where="--batch_size", hint="a positive integer, or `auto`"
        )
    return value


def parse_switch(text: str) -> bool:
    """true or false, in any of their spellings."""
    lowered = text.lower()
    if lowered in ("true", "1", "yes", "on"):
        return True
    if lowered in ("false", "0", "no", "off"):
        return False
    raise BadOption(f"`{text}` is neither true nor false")


def parse_template(text: str) -> bool | str:
    """true, false, or the name of a chat template."""
    lowered = text.lower()
    return lowered == "true" if lowered in ("true", "false") else text


def parse_names(text: str) -> list[str]:
    """A comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_count(text: str) -> int:
    """A whole number, 0 or more."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise BadOption(f"`{text}` is not a whole number of 0 or more")
    return value


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
    device: str | None = option(
        None, "Where a local model runs: cpu, cuda:0, …", "Model", metavar="DEVICE", shapes_result=False
    )
    gen_kwargs: Mapping[str, Any] = option(
        {}, "Generation settings that override the task's.", "Model", parse=parse_arguments, metavar="ARGS"
    )
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
    seed: tuple[int | None, ...] = option(
        (0, 1234, 1234, 1234),
        "Seed of all generators, or four: python,numpy,torch,few-shot.",
        "Run",
        parse=parse_seed,
        metavar="N[,N,N,N]",
    )
    bootstrap_iters: int = option(
        100_000,
        "Resamples for standard errors that have no formula; 0 for none.",
        "Run",
        parse=parse_count,
        metavar="N",
    )
    predict_only: bool = option(False, "Ask, keep the responses, do not score.", "Run", short="x", flag=True)
    output_path: str | None = option(
        None, "Folder for the run and its result files (default ./assay-runs, journal only).", "Output", short="o",
        metavar="DIR|FILE.json", shapes_result=False,
    )  # fmt: skip
    log_samples: bool = option(
        True, "Write samples_<task>.jsonl beside the results.", "Output", short="s", parse=parse_switch, bare=True,
        metavar="[BOOL]", shapes_result=False,
    )  # fmt: skip
    use_cache: str | None = option(
        None,
        "Keep the shared response cache in this file instead of ASSAY_HOME.",
        "Output",
        short="c",
        metavar="FILE",
        shapes_result=False,
    )
    no_cache: bool = option(
        False, "Leave the shared response cache alone.", "Output", flag=True, shapes_result=False
    )

    def __post_init__(self) -> None:
        if self.limit is not None:
            object.__setattr__(self, "limit", _checked_limit(self.limit))
            if self.samples is not None:
                raise BadOption("`limit` and `samples` cannot be used together", hint="leave one of them out")
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
        known = {item.name: item for item in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in settings.items():
            key = name.replace("-", "_")
            if key not in known:
                raise UnknownName.of("option", name, sorted(known), where=where, ls="options")
            values[key] = _read(known[key], value, where)
        return cls(**values)

    def shape(self) -> dict[str, Any]:
        """The settings that decide prompts, answers and scores: what the run is named by."""
        return {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if item.metadata["option"].shapes_result
        }


def _read(item: Field[Any], value: Any, where: str) -> Any:
    details: Option = item.metadata["option"]
    try:
        if isinstance(value, str):
            if details.flag:
                return parse_switch(value)
            return details.parse(value)
        if details.many and isinstance(value, (list, tuple)):
            return [name for entry in value for name in details.parse(str(entry))]
        if item.name == "seed":
            return parse_seed(
                ",".join(str(one) for one in value) if isinstance(value, (list, tuple)) else str(value)
            )
        return value
    except BadOption as error:
        raise BadOption(error.what, where=error.where or where or item.name, hint=error.hint) from None


def run_options() -> list[tuple[str, Any, Option]]:
    """Every option with its name, default and description: for the CLI, the config reader and the docs."""
    rows = []
    for item in fields(RunSpec):
        default = item.default_factory() if callable(item.default_factory) else item.default
        rows.append((item.name, default, item.metadata["option"]))
    return rows
