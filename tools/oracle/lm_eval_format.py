"""Convert requests, answers and results of Assay to the format of an lm_eval corpus, for comparison."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay.core.records.documents import Document
from assay.core.records.messages import Image, Message, Prompt, Text
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.records.verdicts import Estimate, Unscored
from assay.engine.open_document import JudgedBatch
from assay.engine.planning.records import PlannedTask
from assay.engine.results.run_facts import get_num_fewshot
from assay.tasks.prompts.field_compilers import copy_fields
from tools.oracle.lm_eval_values import encode_value

__all__ = ["collect_facts", "format_requests", "format_results", "format_samples"]


def format_requests(
    planned: PlannedTask, document: Document, requests: Sequence[Request]
) -> Iterator[dict[str, Any]]:
    """Convert the requests of a document; a repeated request appears once."""
    spec = planned.spec
    marked = spec.doc_to_image is not None and "<image>" in str(
        planned.task.question(copy_fields(document.fields))
    )
    for request in requests:
        if request.repeat == 0:
            kind, arguments = _format_arguments(request, marked)
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


def _format_arguments(request: Request, marked: bool) -> tuple[str, list[Any]]:
    context = render_prompt(request.prompt, marked=marked)
    match request:
        case Generate():
            return "generate_until", [context, dict(request.settings.values)]
        case Likelihood():
            return "loglikelihood", [context, request.continuation]
        case RollingLikelihood():
            return "loglikelihood_rolling", [context]


def render_prompt(prompt: Prompt, *, marked: bool = False) -> str:
    """Render a prompt with the corpus's chat template; `marked`: write images as `<image>`."""
    if not prompt.chat:
        return "".join(_message_text(message, marked) for message in prompt.messages)
    pieces = [f"<|{message.role}|>\n{_message_text(message, marked)}<|end|>\n" for message in prompt.messages]
    if prompt.continues:
        return "".join(pieces).removesuffix("<|end|>\n")
    return "".join(pieces) + "<|assistant|>\n"


def _message_text(message: Message, marked: bool) -> str:
    if not marked:
        return message.text
    return "".join(part.text if isinstance(part, Text) else "<image>" for part in message.parts)


def format_samples(
    planned: PlannedTask, judged: JudgedBatch, documents: Sequence[Document], prompts: Mapping[int, str]
) -> list[dict[str, Any]]:
    """Return an entry per filter and document, sorted."""
    metrics: dict[tuple[str, int], dict[str, Any]] = {}
    for verdict in judged.verdicts:
        entry = metrics.setdefault((verdict.pipeline, verdict.document), {})
        entry[verdict.metric] = (
            f"unscored: {verdict.why}" if isinstance(verdict, Unscored) else encode_value(verdict.value)
        )
    by_index = {document.index: document for document in documents}
    targets = {
        index: planned.task.target(copy_fields(document.fields)) for index, document in by_index.items()
    }
    rows = []
    for answer in judged.answers:
        index = answer.document
        rows.append(
            {
                "filter": answer.pipeline,
                "doc_id": index,
                "filtered_resps": encode_value(list(answer.values)),
                "metrics": metrics.get((answer.pipeline, index), {}),
                "target": encode_value(targets[index]),
                "doc_hash": _hash_document(by_index[index].prompt_fields or by_index[index].fields),
                "prompt_hash": _hash_text(prompts[index]),
                "target_hash": _hash_text(str(targets[index])),
            }
        )
    return sorted(rows, key=lambda row: (row["filter"], row["doc_id"]))


def _hash_document(fields: Mapping[str, Any]) -> str:
    text = json.dumps(dict(fields), indent=2, default=_encode_other, ensure_ascii=False)
    return _hash_text(text)


def _encode_other(value: Any) -> Any:
    if isinstance(value, set):
        return list(value)
    return int(value) if type(value).__name__ in ("int64", "int32") else str(value)


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def format_results(estimates: Sequence[Estimate]) -> dict[str, Any]:
    """Convert estimates to lm_eval's result keys."""
    numbers: dict[str, Any] = {}
    for estimate in estimates:
        value = f"no value: {estimate.why}" if estimate.why else estimate.value
        numbers[f"{estimate.metric},{estimate.pipeline}"] = value
        numbers[f"{estimate.metric}_stderr,{estimate.pipeline}"] = (
            "N/A" if estimate.stderr is None else estimate.stderr
        )
    return {key: encode_value(value) for key, value in numbers.items()}


def collect_facts(planned: PlannedTask) -> dict[str, Any]:
    """Return what lm_eval reports about a task besides its scores."""
    spec = planned.spec
    return {
        "n_shot": get_num_fewshot(planned),
        "version": spec.version,
        "higher_is_better": {name: use.higher_is_better for name, use in planned.scorer.metrics.items()},
        "n_samples": {"original": len(planned.task.rows), "effective": planned.documents},
        "name": spec.name,
        "alias": spec.alias or spec.name,
        "sample_len": planned.documents,
    }
