"""Generation with the `generate` method of transformers: beams, penalties, unusual caches, encoder-decoder models."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from assay.core.fingerprints import digest_text
from assay.models.hf.batch_budget import BatchBudget, is_out_of_memory, release_memory
from assay.models.hf.text.jobs import AnswerBuilder, GenerationJob
from assay.models.tokens import StopStringDetector, Unanswerable

__all__ = ["generate_with_transformers"]


def generate_with_transformers(
    jobs: Sequence[GenerationJob],
    model: Any,
    budget: BatchBudget,
    *,
    end_tokens: frozenset[int],
    pad_token: int,
    seed: int,
    has_encoder: bool,
    make_stop_detector: Callable[[GenerationJob], StopStringDetector],
    measure: Callable[[Callable[[], Any]], Any],
    raise_if_interrupted: Callable[[], None] = lambda: None,
) -> Iterator[AnswerBuilder | tuple[GenerationJob, Unanswerable]]:
    """Generate answers in batches of jobs with the same settings, long prompts first."""
    for group in _group_by_settings(jobs):
        waiting = [
            AnswerBuilder(job, requests, make_stop_detector(job), end_tokens, None, len(job.tokens))
            for job in sorted(group, key=lambda job: -len(job.tokens))
            for requests in ([job.requests] if job.sampling.is_greedy else [[one] for one in job.requests])
        ]
        while waiting:
            batch = waiting[: budget.size]
            try:
                _generate_batch(
                    model, batch, end_tokens, pad_token, seed, has_encoder, measure, raise_if_interrupted
                )
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or len(batch) < 2:
                    raise
                budget.size = len(batch)
                budget.halve()
                release_memory(model.device)
                for answer in batch:
                    answer.tokens, answer.finish, answer.stop_detector = (
                        [],
                        "",
                        make_stop_detector(answer.job),
                    )
                continue
            except (TypeError, ValueError) as error:  # settings that `generate` does not accept
                first = str(error).splitlines()[0]
                yield from ((answer.job, Unanswerable(first)) for answer in batch)
            else:
                yield from batch
            waiting = waiting[len(batch) :]


def _group_by_settings(jobs: Sequence[GenerationJob]) -> list[list[GenerationJob]]:
    groups: dict[str, list[GenerationJob]] = {}
    for job in jobs:
        key = json.dumps(
            [repr(job.sampling), job.limit, job.transformers_settings], sort_keys=True, default=str
        )
        groups.setdefault(key, []).append(job)
    return list(groups.values())


def _generate_batch(
    model: Any,
    batch: Sequence[AnswerBuilder],
    end_tokens: frozenset[int],
    pad_token: int,
    seed: int,
    has_encoder: bool,
    measure: Callable[[Callable[[], Any]], Any],
    raise_if_interrupted: Callable[[], None],
) -> None:
    """Generate one batch. Each answer receives its own tokens, so that it ends where it would end alone."""
    import torch
    from transformers import StoppingCriteria, StoppingCriteriaList

    job = batch[0].job
    longest = max(len(answer.job.tokens) for answer in batch)
    device = model.get_input_embeddings().weight.device
    ids = torch.full((len(batch), longest), pad_token, dtype=torch.long, device=device)
    mask = torch.zeros_like(ids)
    for row, answer in enumerate(batch):
        ids[row, longest - len(answer.job.tokens) :] = torch.tensor(answer.job.tokens, device=device)
        mask[row, longest - len(answer.job.tokens) :] = 1
    prompt_length = 1 if has_encoder else longest
    beams = int((job.transformers_settings or {}).get("num_beams") or 1)

    class _CompletionCriteria(StoppingCriteria):  # type: ignore[misc]
        def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
            raise_if_interrupted()
            newest = input_ids[:, -1].tolist()
            done = [
                bool(answer.finish) or answer.add_token(token)
                for answer, token in zip(batch, newest, strict=True)
            ]
            return torch.tensor(done, device=input_ids.device)

    if not job.sampling.is_greedy:
        words = [str(seed if (own := job.requests[0].settings.seed) is None else own)]
        words += [request.id for answer in batch for request in answer.requests]
        torch.manual_seed(int(digest_text(*words)[:15], 16))
    # with beams, rows are not answers: stop strings only cut the text afterwards
    criteria = StoppingCriteriaList([_CompletionCriteria()] if beams == 1 else [])
    options = {**_build_sampling_arguments(job), **(job.transformers_settings or {})}
    with torch.inference_mode():
        output = measure(
            lambda: model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=job.limit,
                stopping_criteria=criteria,
                pad_token_id=pad_token,
                eos_token_id=sorted(end_tokens) or None,
                **options,
            )
        )
    for row, answer in enumerate(batch):
        if answer.finish:
            continue
        for token in output[row, prompt_length:].tolist():  # beams, or an answer without any token
            if answer.add_token(token):
                break
        answer.finish = answer.finish or "length"


def _build_sampling_arguments(job: GenerationJob) -> dict[str, Any]:
    sampling = job.sampling
    if sampling.is_greedy:
        return {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
    found: dict[str, Any] = {"do_sample": True, "temperature": sampling.temperature, "top_p": sampling.top_p}
    found["top_k"] = sampling.top_k
    if sampling.min_p:
        found["min_p"] = sampling.min_p
    return found
