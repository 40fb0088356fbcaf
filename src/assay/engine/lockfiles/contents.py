"""Collect the content of a lockfile from a plan: everything that prompts, responses and scores depend on.

Renders every document; sends no request and loads no weights.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, InvalidOption
from assay.core.fingerprints import digest_bytes, digest_json, digest_text
from assay.core.installation import assay_version, find_distribution_name
from assay.core.options.run_spec import list_options
from assay.core.records.codec import to_plain
from assay.core.secrets import REDACTED, contains_redacted, is_secret_key, redact_values
from assay.engine.lockfiles.lockfile import FORMAT, encode_digests
from assay.engine.lockfiles.portable_paths import PortablePaths
from assay.engine.lockfiles.source_code import SourceTrace, list_imports, trace_module, trace_objects
from assay.engine.planning.manifests.manifest import (
    compute_scoring_digests,
    describe_dataset,
    list_helper_digests,
)
from assay.engine.planning.records import Plan, PlannedTask
from assay.engine.results.rendered_documents import render_documents
from assay.engine.results.run_facts import redact_options
from assay.models import MODELS
from assay.scoring import likelihoods
from assay.scoring.metrics import METRICS
from assay.stats.aggregations import AGGREGATIONS
from assay.store.journal import rows
from assay.tasks.digests import digest_content
from assay.tasks.files.helper_functions import find_functions
from assay.tasks.files.resolved_config import to_json_value

__all__ = ["CONSENT_OPTIONS", "LockSettings", "collect_lock"]

CONSENT_OPTIONS = ("confirm_run_unsafe_code", "trust_remote_code")
"""Options that allow code to run: a lockfile records them, and the command line must repeat them."""

_PROMPT_BUDGET = 8_000
"""Characters of readable prompts per task, unless a number of documents is given."""

_MAX_READABLE_VALUE = 4_000
"""Characters of a value of a task file; longer ones are recorded by digest."""

_SHORT_DIGEST = 6
_PATH_OPTIONS = ("decontamination_ngrams_path",)
_LIST_OPTIONS = ("judge", "user")
_MERGED_OPTIONS = ("model_args", "judge_args", "metadata")
"""Options whose secrets are left out: `run --locked` accepts further arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockSettings:
    """How to write a lockfile."""

    folder: Path
    prompts: int | None = None
    """Documents with a readable prompt, per task; None: the first ones, up to a number of characters. -1: all."""

    mirrors: Mapping[str, tuple[str, ...]] | None = None
    """Other ids of datasets."""


def collect_lock(plan: Plan, settings: LockSettings) -> tuple[dict[str, Any], list[str]]:
    """Return the content of a lockfile, and notes about what it does not contain."""
    paths = PortablePaths(settings.folder)
    options, model_paths, notes = _collect_options(plan, paths)
    packages = _PackageUses()
    packages.add(["jinja2"], "templates")
    model: dict[str, Any] = {"name": plan.model.name, "identity": dict(plan.identity)}
    if model_paths:
        model["local_paths"] = model_paths
    model["abilities"] = sorted(plan.model.traits.abilities)
    packages.add(trace_module(_find_model_module(plan)).packages, f"model {plan.model.name}")
    tasks = {name: _describe_task(plan, planned, settings, packages) for name, planned in plan.tasks.items()}
    content = {
        "format": FORMAT,
        "assay": assay_version(),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "options": options,
        "model": model,
        "judges": {name: dict(judge.identity) for name, judge in plan.judges.items()},
        "packages": packages.describe(),
        "groups": {name: list(group.members) for name, group in plan.groups.items()},
        "tasks": tasks,
    }
    plain: dict[str, Any] = json.loads(json.dumps(redact_values(to_plain(content)), default=str))
    return plain, notes


def _find_model_module(plan: Plan) -> str:
    """Return the module of the model's adapter; the model of the plan may be a replica or a stored run's stand-in."""
    with suppress(AssayError):
        return str(getattr(MODELS.get(plan.spec.model), "__module__", "") or "")
    return type(plan.model).__module__


# --- options ---------------------------------------------------------------------------------------


def _collect_options(plan: Plan, paths: PortablePaths) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Return the options that affect results, model arguments that name a place of this machine, and notes."""
    notes: list[str] = []
    redacted = redact_options(plan.spec)
    wanted = {name for name, _, option in list_options() if option.affects_results}
    options = {name: value for name, value in redacted.items() if name in wanted}
    options["tasks"] = list(dict.fromkeys(_list_task_words(plan, paths, notes)))
    for name in _LIST_OPTIONS:
        options[name] = [_drop_credentials(word) for word in options.get(name, ())]
    model_paths: dict[str, str] = {}
    for name, value in options.items():
        hides_secret = contains_redacted(value) and not contains_redacted(to_plain(getattr(plan.spec, name)))
        if hides_secret and name not in _MERGED_OPTIONS:
            raise InvalidOption(
                f"--{name} contains a secret, which a lockfile cannot contain",
                where=f"--{name}",
                hint="remove the secret from the value; pass credentials in environment variables",
            )
    for name in ("model_args", "judge_args", "gen_kwargs", "metadata"):
        kept = {}
        for key, value in options[name].items():
            if contains_redacted(value):
                notes.append(f"not recorded because it is a secret: {name}.{key}")
            elif name.endswith("_args") and PortablePaths.is_path(value):
                portable = paths.to_portable(value)
                if portable is not None:
                    kept[key] = portable
                else:
                    model_paths[key] = Path(value).name
                    notes.append(
                        f"`{value}` is outside the folder of the lockfile: `run --locked` needs --{name} {key}=PATH"
                    )
            else:
                kept[key] = value
        options[name] = kept
    for name in _PATH_OPTIONS:
        if options.get(name) is not None:
            options[name] = paths.to_portable(options[name]) or Path(options[name]).name
    return {**options, **_collect_places(plan, paths, notes)}, model_paths, notes


def _drop_credentials(word: str) -> str:
    """Drop the credentials of `name,key=value`. Other redacted values stay, so that they are found."""
    return ",".join(
        part
        for part in word.split(",")
        if not (part.endswith(f"={REDACTED}") and is_secret_key(part.partition("=")[0].strip()))
    )


def _collect_places(plan: Plan, paths: PortablePaths, notes: list[str]) -> dict[str, Any]:
    """Return the folders of tasks and data that a lockfile can name."""
    spec = plan.spec
    folders = [(folder, paths.to_portable(folder)) for folder in spec.include_path]
    notes += [
        f"`{folder}` is outside the folder of the lockfile: `run --locked` needs --include_path DIR"
        for folder, portable in folders
        if portable is None
    ]
    found: dict[str, Any] = {}
    if inside := [portable for _, portable in folders if portable is not None]:
        found["include_path"] = inside
    if spec.data_root is not None and (root := paths.to_portable(spec.data_root)) is not None:
        found["data_root"] = root
    return found


def _list_task_words(plan: Plan, paths: PortablePaths, notes: list[str]) -> Iterable[str]:
    """Yield the tasks of the plan: names as they are, files by relative path, and files elsewhere by the names of their tasks."""
    places = {name: plan.tasks[name].spec.path for name in plan.top if name in plan.tasks}
    places |= {name: plan.groups[name].path for name in plan.top if name in plan.groups}
    for word in plan.spec.tasks:
        named_path = "/" in word or word.endswith((".yaml", ".yml"))
        if not (named_path and Path(word).expanduser().exists()):
            yield word
            continue
        portable = paths.to_portable(word)
        if portable is not None:
            yield portable
            continue
        target = Path(word).expanduser().resolve()
        names = [
            name for name, place in places.items() if place and Path(place).resolve().is_relative_to(target)
        ]
        yield from names or [Path(word).stem]
        notes.append(
            f"`{word}` is outside the folder of the lockfile: `run --locked` needs --include_path {Path(word).parent.name or 'DIR'}"
        )


# --- tasks -----------------------------------------------------------------------------------------


def _describe_task(
    plan: Plan, planned: PlannedTask, settings: LockSettings, packages: _PackageUses
) -> dict[str, Any]:
    spec, task = planned.spec, planned.task
    for path in _list_helper_files(planned):
        with suppress(OSError, UnicodeDecodeError):
            packages.add(list_imports(Path(path).read_text("utf-8")), f"helper {Path(path).name}")
    if hasattr(task.rows, "data") and hasattr(task.rows, "with_format"):
        packages.add(["datasets", "pyarrow", *(["PIL"] if task.has_media else [])], "data")
    prompts, documents, readable = _digest_documents(plan, planned, settings.prompts)
    return {
        "version": str(spec.version),
        "output_type": str(spec.output_type),
        "num_fewshot": task.num_fewshot,
        "documents": planned.documents,
        "dataset": _describe_data(planned, settings.mirrors or {}),
        "files": _digest_files(planned),
        "config": _describe_config(planned),
        "settings": to_plain(dict(task.settings.values)),
        **_describe_scoring(planned, packages),
        "prompts": {
            "digest": digest_json(prompts),
            "first": readable,
            "digests": encode_digests((number, digest[:_SHORT_DIGEST]) for number, digest in prompts),
        },
        "content": {
            "digest": digest_json(documents),
            "digests": encode_digests((number, digest[:_SHORT_DIGEST]) for number, digest in documents),
        },
    }


def _describe_data(planned: PlannedTask, mirrors: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    task = planned.task
    found = describe_dataset(planned)
    for key in ("digest", "mirror"):
        found.pop(key, None)
    if isinstance(path := found.get("path"), str) and PortablePaths.is_path(path):
        found["path"] = Path(path).name
    found["digest"] = digest_content(task.rows)
    if task.num_fewshot:
        found["fewshot_digest"] = digest_content(task.fewshot_pool)
    if known := mirrors.get(str(planned.spec.dataset_path)):
        found["mirrors"] = list(known)
    return found


def _digest_files(planned: PlannedTask) -> dict[str, str]:
    """Hash the task file, the files it includes, and helper files; by path from the task file."""
    spec = planned.spec
    if not spec.path:
        return {}
    folder = Path(spec.path).resolve().parent
    places = {spec.path, *(place.rpartition(":")[0] for place in spec.places.values())}
    if isinstance(spec.tools, str):
        places.add(str(folder / spec.tools))
    found = {}
    for place in {*places, *_list_helper_files(planned)}:
        path = Path(place).resolve()
        with suppress(OSError):
            if path.is_file():
                found[_relate(path, folder)] = digest_bytes(path.read_bytes())
    return dict(sorted(found.items()))


def _relate(path: Path, folder: Path) -> str:
    """Return a path from the folder of the task file; the last two parts of one that is far away."""
    for up, above in enumerate((folder, *folder.parents[:2])):
        if path.is_relative_to(above):
            return "/".join([".."] * up + [path.relative_to(above).as_posix()])
    return "/".join(path.parts[-2:])


def _list_helper_files(planned: PlannedTask) -> list[str]:
    return list(list_helper_digests(planned.spec, {})) if find_functions(planned.spec.config) else []


def _describe_config(planned: PlannedTask) -> dict[str, Any]:
    """Return the merged task file: readable, without places of this machine, long values by digest."""
    described = {}
    for key, value in sorted(planned.spec.config.items()):
        if value is None or key in ("tag", "group", "task_alias", "include"):
            continue
        plain = _hide_places(json.loads(json.dumps(to_json_value(value), default=str)))
        is_long = len(json.dumps(plain)) > _MAX_READABLE_VALUE
        described[key] = f"digest {digest_json(plain)}" if is_long else plain
    return described


def _hide_places(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _hide_places(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_hide_places(item) for item in value]
    is_place = (
        isinstance(value, str)
        and value.startswith(("/", "~/"))
        and PortablePaths.is_path(value)
        and _exists(value)
    )
    return f"…/{Path(value).name}" if is_place else value


def _exists(name: str) -> bool:
    try:
        return Path(name).expanduser().exists()
    except (OSError, ValueError, RuntimeError):  # not a valid file name, or no home folder
        return False


def _describe_scoring(planned: PlannedTask, packages: _PackageUses) -> dict[str, Any]:
    """Return the digest of each filter pipeline and metric: arguments, and the code that computes it."""
    known = compute_scoring_digests(planned)
    scorer, spec = planned.scorer, planned.spec
    filters = {}
    for pipeline in scorer.pipelines:
        trace = _trace_own(step.factory for step in pipeline.steps)
        packages.add(trace.packages, f"filter {pipeline.name}")
        filters[pipeline.name] = digest_text(known["filters"][pipeline.name], trace.digest)
    metrics = {}
    for name, report in scorer.metrics.items():
        functions: list[Any] = [
            likelihoods.judge_choices,
            likelihoods.judge_likelihood,
            likelihoods.judge_rolling,
        ]
        functions = functions if spec.output_type.compares_choices or "likelihood" in spec.output_type else []
        if name in METRICS:
            functions.append(METRICS.get(name).function)
        with suppress(AssayError):
            aggregation = report.aggregation
            functions.append(AGGREGATIONS.get(aggregation) if isinstance(aggregation, str) else aggregation)
        trace = _trace_own(functions)
        packages.add(trace.packages, f"metric {name}")
        metrics[name] = digest_text(known["metrics"][name], trace.digest)
    judged = {}
    listed = {metric.name: metric for metric in spec.metrics}
    for panel in scorer.panels:
        entry = listed.get(panel.spec.metric)
        code = _trace_own([type(panel.spec.judge)]).digest
        judged[panel.spec.metric] = {
            "judges": [member.name for member in panel.members],
            "prompt": digest_text(
                digest_json(dict(entry.arguments) if entry else {}), code, panel.spec.system
            ),
        }
    return {"filters": filters, "metrics": metrics, **({"judged": judged} if judged else {})}


def _trace_own(functions: Iterable[Any]) -> SourceTrace:
    return trace_objects(one for one in functions if getattr(one, "__module__", None))


# --- documents -------------------------------------------------------------------------------------

Digests = list[tuple[int, str]]


def _digest_documents(
    plan: Plan, planned: PlannedTask, count: int | None
) -> tuple[Digests, Digests, list[dict[str, Any]]]:
    """Render every document: digests of its prompts, digests of its fields and target, and the first prompts as text."""
    prompts: Digests = []
    contents: Digests = []
    readable: list[dict[str, Any]] = []
    size = 0
    for document, target, content in render_documents(plan, planned):
        shown = _describe_requests(content, planned.task.settings.digest)
        prompts.append((document.index, digest_json(shown)))
        fields = rows.encode_fields(document.fields)
        contents.append((document.index, digest_text(fields, rows.encode_target(target))))
        is_first = count == -1 or (len(readable) < count if count is not None else size < _PROMPT_BUDGET)
        if is_first:
            size += len(json.dumps(shown))
            if not readable or count is not None or size <= _PROMPT_BUDGET:
                readable.append({"document": document.index, **shown})
    return prompts, contents, readable


def _describe_requests(content: Any, settings: str) -> dict[str, Any]:
    """Return the requests of a document in readable form: prompts, continuations, settings that are not those of the task."""
    if isinstance(content, str):
        return {"error": content}
    described = []
    for text in content["prompts"]:
        messages = None
        if text.startswith('{"messages"'):
            with suppress(ValueError):
                messages = json.loads(text)
        described.append(messages if isinstance(messages, dict) else text)
    generated = [request for request in content["requests"] if request[2] == "generate"]
    found: dict[str, Any] = {"prompts": described}
    if len(generated) < len(content["requests"]):
        found["continuations"] = [[request[3], request[4]] for request in content["requests"]]
    else:
        if own := sorted({request[4] for request in generated} - {settings}):
            found["settings"] = own
        if len(generated) > 1:
            found["requests"] = len(generated)
    if options := content.get("options"):
        found["options"] = options
    return found


# --- packages --------------------------------------------------------------------------------------


class _PackageUses:
    """The installed packages that the tasks and the model use, and what uses them."""

    def __init__(self) -> None:
        self._uses: dict[str, dict[str, None]] = {}

    def add(self, modules: Iterable[str], user: str) -> None:
        """Add import names; `user` says what imports them."""
        for module in modules:
            self._uses.setdefault(module, {})[user] = None

    def describe(self) -> dict[str, Any]:
        """Return distribution -> version and users. Packages that are not installed are left out."""
        found: dict[str, dict[str, Any]] = {}
        for module, users in self._uses.items():
            distribution = _find_distribution(module)
            if distribution is not None:
                name, number = distribution
                entry = found.setdefault(name, {"version": number, "used_by": []})
                entry["used_by"] = sorted({*entry["used_by"], *users})
        return dict(sorted(found.items()))


def _find_distribution(module: str) -> tuple[str, str] | None:
    """Return name and version of the distribution that provides a module."""
    name = find_distribution_name(module).lower().replace("_", "-")
    with suppress(PackageNotFoundError):
        return name, version(name)
    with suppress(ImportError, ValueError, AttributeError):
        spec = find_spec(module)
        if spec is not None and "-packages" in str(spec.origin or spec.submodule_search_locations):
            for other in _read_packages_distributions().get(module, ()):
                with suppress(PackageNotFoundError):
                    return other.lower().replace("_", "-"), version(other)
    return None


@lru_cache(maxsize=1)
def _read_packages_distributions() -> Mapping[str, list[str]]:
    """Return the distributions of each import name, once: it reads every installed distribution."""
    return packages_distributions()
