"""Requests, answers and numbers of Assay as an lm_eval corpus writes them, for comparison."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay.core.documents import Document
from assay.core.messages import Image, Message, Prompt, Text
from assay.core.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.verdicts import Estimate, Unscored
from assay.engine.judging.documents import Judged
from assay.engine.planning.plan import PlannedTask
from assay.engine.results.run_facts import task_shots
from assay.tasks.makers import loan
from assay.testing.oracle.corpus import encode_value

__all__ = ["facts_of", "request_key", "results_of", "samples_of", "shown_requests"]


def shown_requests(
    planned: PlannedTask, document: Document, requests: Sequence[Request]
) -> Iterator[dict[str, Any]]:
    """The requests of a document, each once, however often it is repeated."""
    spec = planned.spec
    marked = spec.doc_to_image is not None and "<image>" in str(planned.task.question(loan(document.fields)))
    for request in requests:
        if request.repeat == 0:
            kind, arguments = _arguments(request, marked)
            media = {"visual": [part.load() for part in request.prompt.media if isinstance(part, Image)]}
            if spec.doc_to_image is not None or media["visual"]:
                arguments.append(media)
            yield {
                "type": kind,
                "args": encode_value(arguments),
                "doc_id": request.document,
                "idx": request.index,
                "repeats": sum(other.index == request.index for other in requests),
            }


def _arguments(request: Request, marked: bool) -> tuple[str, list[Any]]:
    context = prompt_text(request.prompt, marked=marked)
    match request:
        case Generate():
            return "generate_until", [context, dict(request.settings.values)]
        case Likelihood():
            return "loglikelihood", [context, request.continuation]
        case RollingLikelihood():
            return "loglikelihood_rolling", [context]


def prompt_text(prompt: Prompt, *, marked: bool = False) -> str:
    """The prompt after the corpus's chat template; `marked`: pictures stand where the text said `<image>`."""
    if not prompt.chat:
        return "".join(_text(message, marked) for message in prompt.messages)
    pieces = [f"<|{message.role}|>\n{_text(message, marked)}<|end|>\n" for message in prompt.messages]
    if prompt.continues:
        return "".join(pieces).removesuffix("<|end|>\n")
    return "".join(pieces) + "<|assistant|>\n"


def _text(message: Message, marked: bool) -> str:
    if not marked:
        return message.text
    return "".join(part.text if isinstance(part, Text) else "<image>" for part in message.parts)


def request_key(kind: str, arguments: Any) -> str:
    """The name under which a corpus keeps the responses to a request."""
    text = json.dumps([kind, arguments], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return _sha(text)


def samples_of(
    planned: PlannedTask, judged: Judged, documents: Sequence[Document], prompts: Mapping[int, str]
) -> list[dict[str, Any]]:
    """One entry per filter and document, sorted."""
    metrics: dict[tuple[str, int], dict[str, Any]] = {}
    for verdict in judged.verdicts:
        entry = metrics.setdefault((verdict.pipeline, verdict.document), {})
        entry[verdict.metric] = (
            f"unscored: {verdict.why}" if isinstance(verdict, Unscored) else encode_value(verdict.value)
        )
    by_index = {document.index: document for document in documents}
    targets = {at: planned.task.target(loan(document.fields)) for at, document in by_index.items()}
    rows = []
    for answer in judged.answers:
        at = answer.document
        rows.append(
            {
                "filter": answer.pipeline,
                "doc_id": at,
                "filtered_resps": encode_value(list(answer.values)),
                "metrics": metrics.get((answer.pipeline, at), {}),
                "target": encode_value(targets[at]),
                "doc_hash": _document_sha(by_index[at].fields),
                "prompt_hash": _sha(prompts[at]),
                "target_hash": _sha(str(targets[at])),
            }
        )
    return sorted(rows, key=lambda row: (row["filter"], row["doc_id"]))


def _document_sha(fields: Mapping[str, Any]) -> str:
    text = json.dumps(dict(fields), indent=2, default=_not_json, ensure_ascii=False)
    return _sha(text)


def _not_json(value: Any) -> Any:
    if isinstance(value, set):
        return list(value)
    return int(value) if type(value).__name__ in ("int64", "int32") else str(value)


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def results_of(estimates: Sequence[Estimate]) -> dict[str, Any]:
    """The numbers under lm_eval's keys."""
    numbers: dict[str, Any] = {}
    for estimate in estimates:
        value = f"no value: {estimate.why}" if estimate.why else estimate.value
        numbers[f"{estimate.metric},{estimate.pipeline}"] = value
        numbers[f"{estimate.metric}_stderr,{estimate.pipeline}"] = (
            "N/A" if estimate.stderr is None else estimate.stderr
        )
    return {key: encode_value(value) for key, value in numbers.items()}


def facts_of(planned: PlannedTask) -> dict[str, Any]:
    """What lm_eval reports beside the numbers of a task."""
    spec = planned.spec
    return {
        "n_shot": task_shots(planned),
        "version": spec.version,
        "higher_is_better": {name: use.higher_is_better for name, use in planned.scorer.metrics.items()},
        "n_samples": {"original": len(planned.task.rows), "effective": planned.documents},
        "name": spec.name,
        "alias": spec.alias or spec.name,
        "sample_len": planned.documents,
    }
