"""`load_task`: YAML -> TaskSpec. Checks that every key is known and has the right type.

Reports all problems of a file at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, ErrorGroup, TaskError
from assay.core.records.agents import AGENT_REPEATS
from assay.core.records.specs import (
    Dialect,
    FewshotSpec,
    FilterStep,
    GroupMetric,
    MetricSpec,
    OutputType,
    PipelineSpec,
    TaskSpec,
)
from assay.core.records.tools import TOOL_CALL_MODES
from assay.core.terminal_text import describe_invalid_name
from assay.tasks.agents import AGENT_KEYS, parse_agent
from assay.tasks.files.dialects import detect_dialect, isolate_helper_modules
from assay.tasks.files.yaml_reader import TaskFile, read_task_file
from assay.tasks.tools import parse_response_format, parse_tool_choice, parse_tools
from assay.tasks.variants.definitions import parse_variants

__all__ = ["load_task", "task_from_config"]

_TEXT_KEYS = (
    "dataset_path dataset_name training_split validation_split test_split fewshot_split use_prompt "
    "fewshot_delimiter target_delimiter gen_prefix cluster_key score_key choice_column"
).split()
_FIELD_KEYS = (
    "description doc_to_text doc_to_target doc_to_choice doc_to_image doc_to_audio doc_to_visual doc_to_messages "
    "doc_to_decontamination_query tools doc_to_tool_prompt"
).split()
_FUNCTION_KEYS = "custom_dataset process_docs process_results".split()
_MAPPING_KEYS = (
    "dataset_kwargs generation_kwargs lmms_eval_specific_kwargs model_specific_generation_kwargs model_specific_target_kwargs"
).split()
_SWITCH_KEYS = (
    "should_decontaminate unsafe_code process_results_use_image full_docs auto_strip_thinking"
).split()
_COUNT_MINIMUMS = {"num_fewshot": 0, "repeats": 1, "batch_size": 1}
_OTHER_KEYS = (
    "task task_alias tag group group_alias output_type metric_list filter_list fewshot_config metadata reasoning_tags include class "
    "dialect tool_choice parallel_tool_calls tool_calls response_format choice_letters variants"
).split()
_OLD_KEYS = {"model_specific_prompt_kwargs": "lmms_eval_specific_kwargs"}
"""Names of keys in older versions: lmms_eval before 0.2.1."""

TASK_KEYS = frozenset(
    (
        *_TEXT_KEYS,
        *_FIELD_KEYS,
        *_FUNCTION_KEYS,
        *_MAPPING_KEYS,
        *_SWITCH_KEYS,
        *_COUNT_MINIMUMS,
        *_OTHER_KEYS,
        *AGENT_KEYS,
        "task_list",
    )
)


def load_task(path: Path) -> TaskSpec:
    """Load the task of a YAML file and its includes."""
    return task_from_config(read_task_file(path))


def task_from_config(
    file: TaskFile, overrides: Mapping[str, Any] | None = None, *, name: str | None = None
) -> TaskSpec:
    """Build a task from a merged config. The overrides of a group replace whole keys."""
    return _SpecBuilder(file, {**file.config, **(overrides or {})}).build(name)


class _SpecBuilder:
    """Builds a `TaskSpec` from a config and collects every problem."""

    def __init__(self, file: TaskFile, config: Mapping[str, Any]) -> None:
        self.file = file
        config = {_OLD_KEYS.get(key, key): value for key, value in config.items()}
        self.dialect = detect_dialect(file.path, config)
        self.config = isolate_helper_modules(config) if self.dialect.isolates_helper_modules else config
        self.problems: list[AssayError] = []

    def build(self, name: str | None) -> TaskSpec:
        if self.config.get("class") is not None:
            return self._class_task(name)
        self._check_keys()
        values: dict[str, Any] = {}
        for key in _TEXT_KEYS:
            self._read_value(
                values, key, str, "a text", cast=str if key in ("dataset_name", "gen_prefix") else None
            )
        for key in _FIELD_KEYS:
            if self.config.get(key) is not None:
                values[key] = self.config[key]
        for key in _FUNCTION_KEYS:
            self._read_function(values, key)
        for key in _MAPPING_KEYS:
            self._read_value(values, key, Mapping, "a mapping of keys")
        for key in _SWITCH_KEYS:
            self._read_value(values, key, bool, "true or false")
        for key, minimum in _COUNT_MINIMUMS.items():
            self._read_value(values, key, int, "a whole number")
            if values.get(key, minimum) < minimum:
                self._add_problem(f"`{key}` must be at least {minimum}, not {values[key]}", key)
        values["output_type"] = self._parse_output_type()
        if values["output_type"].is_agent:
            values.setdefault("repeats", AGENT_REPEATS)
        values["generation_kwargs"] = self._generation_settings(values)
        values["metrics"] = self._parse_metrics()
        values["pipelines"] = self._parse_pipelines()
        values["fewshot"] = self._parse_fewshot()
        values["tags"] = self._parse_tags()
        self._read_agent(values)
        self._read_tool_settings(values)
        self._read_variants(values)
        task_name = name or self.config.get("task")
        if not isinstance(task_name, str) or not task_name:
            self._add_problem("a task needs a name", "task", hint="`task: my_task`")
        if not values.get("dataset_path") and not values.get("custom_dataset"):
            self._add_problem(
                "the task has no dataset", "", hint="add `dataset_path:`, or `custom_dataset: !function …`"
            )
        if not values.get("test_split") and not values.get("validation_split"):
            self._add_problem(
                "the task has no split to evaluate", "", hint="add `test_split:` or `validation_split:`"
            )
        return self._build_spec(task_name, reasoning_tags=self.config.get("reasoning_tags"), **values)

    def _class_task(self, name: str | None) -> TaskSpec:
        """Build a task that is a Python class. The class defines the rest and may have keys of its own."""
        values: dict[str, Any] = {"tags": self._parse_tags()}
        self._read_value(values, "num_fewshot", int, "a whole number")
        task_name = name or self.config.get("task")
        if not isinstance(task_name, str) or not task_name:
            self._add_problem("a task needs a name", "task", hint="`task: my_task`")
        if not callable(self.config["class"]):
            self._add_problem("`class` must name a class", "class", hint="`class: !function task.MyTask`")
        return self._build_spec(task_name, **values)

    def _build_spec(self, name: Any, **values: Any) -> TaskSpec:
        """Return the task, or raise the collected problems."""
        if isinstance(name, str) and (problem := describe_invalid_name(name)):
            self._add_problem(problem, "task", hint="use letters, digits, `_`, `-`, `.`, `:` and `/`")
        if self.problems:
            raise self.problems[0] if len(self.problems) == 1 else ErrorGroup(self.problems)
        return TaskSpec(
            name=str(name),
            path=str(self.file.path),
            dialect=self.dialect,
            alias=self.config.get("task_alias"),
            metadata=_parse_metadata(self.config.get("metadata")),
            config=dict(self.config),
            places=self.file.places,
            **values,
        )

    def _add_problem(self, what: str, key: str, *, hint: str = "") -> None:
        self.problems.append(TaskError(what, where=self._where(key), hint=hint))

    def _where(self, key: str) -> str:
        place = self.file.places.get(key)
        return f"{place}, {key}" if place else f"{self.file.path}{', ' + key if key else ''}"

    def _check_keys(self) -> None:
        for key in self.config:
            if key not in TASK_KEYS:
                close = get_close_matches(str(key), sorted(TASK_KEYS), n=1)
                self._add_problem(
                    f"a task has no key `{key}`",
                    str(key),
                    hint=f"did you mean `{close[0]}`?" if close else "",
                )

    def _read_value(
        self,
        values: dict[str, Any],
        key: str,
        kind: Any,
        meaning: str,
        cast: Callable[[Any], Any] | None = None,
    ) -> None:
        value = self.config.get(key)
        if value is None:
            return
        if cast is not None and isinstance(value, (int, float)) and not isinstance(value, bool):
            value = cast(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self._add_problem(f"`{key}` must be {meaning}, not {value!r}", key)
            return
        values[key] = value

    def _read_function(self, values: dict[str, Any], key: str) -> None:
        value = self.config.get(key)
        if value is None:
            return
        if not callable(value):
            self._add_problem(
                f"`{key}` must be a function, not {value!r}", key, hint=f"`{key}: !function utils.{key}`"
            )
            return
        values[key] = value

    def _parse_output_type(self) -> OutputType:
        default = OutputType.AGENT if self.config.get("solver") is not None else OutputType.GENERATE_UNTIL
        value = self.config.get("output_type") or default
        known = [str(output_type) for output_type in OutputType]
        if value not in known:
            close = get_close_matches(str(value), known, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"one of {', '.join(known[:4])}"
            self._add_problem(f"`{value}` is not an output type", "output_type", hint=hint)
            return OutputType.GENERATE_UNTIL
        output_type = OutputType(value)
        if output_type.compares_choices and self.config.get("doc_to_choice") is None:
            self._add_problem(f"a {output_type} task needs `doc_to_choice`", "output_type")
        return output_type

    def _generation_settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the generation settings with the defaults of the dialect, in the order of the harness."""
        if not values["output_type"].generates_text:
            return {}
        given = values.get("generation_kwargs")
        if values["output_type"].is_agent:  # a blank line does not end a turn
            return {"until": [], "max_gen_toks": 1024, "temperature": 0.0, **(given or {})}
        delimiter = self.config.get("fewshot_delimiter", "\n\n")  # `null` means no stop string
        if given is None:
            return self.dialect.default_generation(None if delimiter is None else [delimiter])
        settings = dict(given)
        if "temperature" in settings and settings["temperature"] is not None:
            try:
                settings["temperature"] = float(settings["temperature"])
            except (TypeError, ValueError):
                self._add_problem(
                    f"`temperature` must be a number, not {settings['temperature']!r}", "generation_kwargs"
                )
        settings.setdefault("until", [delimiter])
        return settings

    def _parse_metrics(self) -> tuple[MetricSpec, ...]:
        metrics = []
        for key, entry in self._list_entries("metric_list"):
            if not isinstance(entry, Mapping) or entry.get("metric") is None:
                self._add_problem(
                    "an entry of `metric_list` needs a `metric`", key, hint="`- metric: exact_match`"
                )
                continue
            rest = {
                name: value
                for name, value in entry.items()
                if name not in ("metric", "aggregation", "higher_is_better")
            }
            metrics.append(
                MetricSpec(
                    metric=entry["metric"],
                    aggregation=entry.get("aggregation"),
                    higher_is_better=entry.get("higher_is_better"),
                    arguments=rest,
                    where=self._where(key),
                )
            )
        return tuple(metrics)

    def _parse_pipelines(self) -> tuple[PipelineSpec, ...]:
        pipelines = []
        for key, entry in self._list_entries("filter_list"):
            steps = entry.get("filter") if isinstance(entry, Mapping) else None
            if not isinstance(steps, Sequence) or isinstance(steps, str) or not entry.get("name"):
                self._add_problem("an entry of `filter_list` needs a `name` and a list `filter`", key)
                continue
            parsed = []
            for index, step in enumerate(steps):
                place = f"{key}.filter[{index}]"
                if not isinstance(step, Mapping) or step.get("function") is None:
                    self._add_problem(
                        "a filter step needs a `function`", place, hint="`- function: take_first`"
                    )
                    continue
                arguments = {name: value for name, value in step.items() if name != "function"}
                parsed.append(
                    FilterStep(function=step["function"], arguments=arguments, where=self._where(place))
                )
            pipelines.append(PipelineSpec(name=str(entry["name"]), steps=tuple(parsed)))
        return tuple(pipelines)

    def _list_entries(self, key: str) -> list[tuple[str, Any]]:
        value = self.config.get(key)
        if value is None:
            return []
        if not isinstance(value, Sequence) or isinstance(value, str):
            self._add_problem(f"`{key}` must be a list", key)
            return []
        return [(f"{key}[{index}]", entry) for index, entry in enumerate(value)]

    def _parse_fewshot(self) -> FewshotSpec:
        given = self.config.get("fewshot_config")
        if given is None:
            return FewshotSpec()
        if not isinstance(given, Mapping):
            self._add_problem(f"`fewshot_config` must be a mapping of keys, not {given!r}", "fewshot_config")
            return FewshotSpec()
        known = set(FewshotSpec.__dataclass_fields__)
        for key in given:
            if key not in known | {"fewshot_indices", "num_fewshot"}:
                close = get_close_matches(str(key), sorted(known), n=1)
                hint = f"did you mean `{close[0]}`?" if close else f"known keys: {', '.join(sorted(known))}"
                self._add_problem(f"`fewshot_config` has no key `{key}`", f"fewshot_config.{key}", hint=hint)
        return FewshotSpec(
            **{
                key: value
                for key, value in given.items()
                if key in known - self.dialect.ignored_fewshot_keys and value is not None
            }
        )

    def _read_agent(self, values: dict[str, Any]) -> None:
        """Read the keys of an agent task. Its tools are not those of a request: the solver runs them."""
        if values["output_type"].is_agent:
            values["agent"], problems = parse_agent(self.config, self._where, self.file.path.parent)
            self.problems += problems
            values.pop("tools", None)
            values.setdefault("doc_to_text", "")
            return
        for key in AGENT_KEYS:
            if self.config.get(key) is not None:
                self._add_problem(
                    f"`{key}` has no effect: the task is no agent task", key, hint="add `output_type: agent`"
                )

    def _read_tool_settings(self, values: dict[str, Any]) -> None:
        """Read and check `tools` and the keys beside it."""
        self._read_value(values, "parallel_tool_calls", bool, "true or false")
        mode = self.config.get("tool_calls")
        if mode is not None and mode not in TOOL_CALL_MODES:
            self._add_problem(
                f"invalid value for `tool_calls`: {mode!r}",
                "tool_calls",
                hint=f"one of {', '.join(TOOL_CALL_MODES)}",
            )
        elif mode is not None:
            values["tool_calls"] = mode
        if self.config.get("tool_choice") is not None:
            try:
                values["tool_choice"] = parse_tool_choice(self.config["tool_choice"])
            except ValueError:
                self._add_problem(
                    f"invalid value for `tool_choice`: {self.config['tool_choice']!r:.60}",
                    "tool_choice",
                    hint="auto, none, required, or the name of a tool",
                )
        given = values.get("tools")
        try:
            if isinstance(given, list):
                names = [tool.name for tool in parse_tools(given, self._where("tools"))]
                choice = values.get("tool_choice", "auto")
                if choice not in ("auto", "none", "required", *names):
                    self._add_problem(
                        f"`tool_choice` names a tool that does not exist: `{choice}`",
                        "tool_choice",
                        hint=f"auto, none, required, or one of: {', '.join(names)}",
                    )
            elif given is not None and not isinstance(given, str) and not callable(given):
                self._add_problem(
                    f"`tools` must be a list, a column, a file or a function, not {given!r:.60}", "tools"
                )
            if self.config.get("response_format") is not None:
                where = self._where("response_format")
                values["response_format"] = parse_response_format(self.config["response_format"], where)
        except AssayError as problem:
            self.problems.append(problem)
        own = [key for key in ("tools", "response_format") if values.get(key) is not None]
        if own and not values["output_type"].generates_text:
            self._add_problem(
                f"`{own[0]}` needs generated text, which a {values['output_type']} task does not have",
                own[0],
                hint="`output_type: generate_until`",
            )
        others = ("tool_choice", "parallel_tool_calls", "tool_calls", "doc_to_tool_prompt")
        for key in others if given is None and values.get("agent") is None else ():
            if self.config.get(key) is not None:
                self._add_problem(f"`{key}` has no effect: the task has no `tools`", key)

    def _read_variants(self, values: dict[str, Any]) -> None:
        """Read `variants` and the letters of `choice_column`."""
        values["variants"], problems = parse_variants(self.config.get("variants"), self._where)
        self.problems += problems
        letters = self.config.get("choice_letters")
        if letters is None:
            return
        if not isinstance(letters, list) or len(set(map(str, letters))) < max(2, len(letters)):
            self._add_problem(
                "`choice_letters` must be a list of different texts",
                "choice_letters",
                hint='`["1", "2", "3", "4"]`',
            )
        elif values.get("choice_column") is None:
            self._add_problem(
                "`choice_letters` has no effect: the task has no `choice_column`", "choice_letters"
            )
        else:
            values["choice_letters"] = tuple(map(str, letters))

    def _parse_tags(self) -> tuple[str, ...]:
        """Return the tags: `tag`, and `group` of a task file, which older guides use in the same way."""
        names: list[str] = []
        for key in ("tag", "group"):
            value = self.config.get(key)
            listed = value if isinstance(value, list) else [] if value is None else [value]
            for name in listed:
                if isinstance(name, str):
                    names.append(name)
                else:
                    self._add_problem(f"`{key}` must be a name or a list of names, not {value!r}", key)
        return tuple(dict.fromkeys(names))


def _parse_metadata(value: Any) -> dict[str, Any]:
    """Return `metadata` as a mapping. The guides of lmms_eval write a list of mappings."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        merged: dict[str, Any] = {}
        for entry in value:
            merged.update(entry if isinstance(entry, Mapping) else {})
        return merged
    return {}


def parse_group_metrics(
    value: Any, *, where: str = "", dialect: Dialect = Dialect.LM_EVAL
) -> tuple[GroupMetric, ...]:
    """Parse `aggregate_metric_list`: a list or one mapping. The dialect decides the default of `weight_by_size`.

    A function as `metric` never matches the name of a metric, as in lm-eval: the group has no score for it.

    Raises:
        TaskError: An entry is not a mapping or has no metric.
    """
    entries = value if isinstance(value, list) else [] if value is None else [value]
    metrics = []
    for entry in entries:
        if not isinstance(entry, Mapping) or not (
            isinstance(entry.get("metric"), str) or callable(entry.get("metric"))
        ):
            raise TaskError(
                f"an entry of `aggregate_metric_list` needs a `metric`, not {entry!r:.60}",
                where=where,
                hint="`- metric: acc`",
            )
        filters = entry.get("filter_list")
        metrics.append(
            GroupMetric(
                metric=f"!function {metric.__name__}" if callable(metric := entry["metric"]) else metric,
                aggregation=entry.get("aggregation", "mean"),
                weight_by_size=bool(entry.get("weight_by_size", dialect.weights_groups_by_size)),
                filter_list=None
                if filters is None
                else (filters,)
                if isinstance(filters, str)
                else tuple(filters),
            )
        )
    return tuple(metrics)
