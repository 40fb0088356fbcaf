"""Answers written by transformers' own `generate`: beams, penalties, models with unusual caches, models with an encoder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from assay.core.fingerprints import digest_text
from assay.models.hf.batch_budget import Budget, free_memory, is_out_of_memory
from assay.models.hf.text.jobs import Job, Writer
from assay.models.tokens import StopWatch, Unanswerable

__all__ = ["write_plainly"]


def write_plainly(
    jobs: Sequence[Job],
    model: Any,
    rows: Budget,
    *,
    ends: frozenset[int],
    pad_token: int,
    seed: int,
    has_encoder: bool,
    watch: Callable[[Job], StopWatch],
    timed: Callable[[Callable[[], Any]], Any],
    check: Callable[[], None] = lambda: None,
) -> Iterator[Writer | tuple[Job, Unanswerable]]:
    """Every answer, batch by batch; jobs with the same settings together, long prompts first."""
    for group in _alike(jobs):
        waiting = [
            Writer(job, requests, watch(job), ends, None, len(job.tokens))
            for job in sorted(group, key=lambda job: -len(job.tokens))
            for requests in ([job.requests] if job.choice.is_greedy else [[one] for one in job.requests])
        ]
        while waiting:
            batch = waiting[: rows.size]
            try:
                _generate(model, batch, ends, pad_token, seed, has_encoder, timed, check)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or len(batch) < 2:
                    raise
                rows.size = len(batch)
                rows.halve()
                free_memory(model.device)
                for writer in batch:
                    writer.tokens, writer.finish, writer.watch = [], "", watch(writer.job)
                continue
            except (TypeError, ValueError) as error:  # settings `generate` does not take
                first = str(error).splitlines()[0]
                yield from ((writer.job, Unanswerable(first)) for writer in batch)
            else:
                yield from batch
            waiting = waiting[len(batch) :]


def _alike(jobs: Sequence[Job]) -> list[list[Job]]:
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        key = json.dumps([repr(job.choice), job.limit, job.others], sort_keys=True, default=str)
        groups.setdefault(key, []).append(job)
    return list(groups.values())


def _generate(
    model: Any,
    batch: Sequence[Writer],
    ends: frozenset[int],
    pad_token: int,
    seed: int,
    has_encoder: bool,
    timed: Callable[[Callable[[], Any]], Any],
    check: Callable[[], None],
) -> None:
    """Let transformers write; rows hear their own tokens, so that each ends where it ends alone."""
    import torch
    from transformers import StoppingCriteria, StoppingCriteriaList

    job = batch[0].job
    longest = max(len(writer.job.tokens) for writer in batch)
    device = model.get_input_embeddings().weight.device
    ids = torch.full((len(batch), longest), pad_token, dtype=torch.long, device=device)
    mask = torch.zeros_like(ids)
    for row, writer in enumerate(batch):
        ids[row, longest - len(writer.job.tokens) :] = torch.tensor(writer.job.tokens, device=device)
        mask[row, longest - len(writer.job.tokens) :] = 1
    skipped = 1 if has_encoder else longest
    beams = int((job.others or {}).get("num_beams") or 1)

    class _Heard(StoppingCriteria):  # type: ignore[misc]
        def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
            check()
            newest = input_ids[:, -1].tolist()
            done = [
                bool(writer.finish) or writer.hear(token) for writer, token in zip(batch, newest, strict=True)
            ]
            return torch.tensor(done, device=input_ids.device)

    if not job.choice.is_greedy:
        words = [str(seed if (own := job.requests[0].settings.seed) is None else own)]
        words += [request.id for writer in batch for request in writer.requests]
        torch.manual_seed(int(digest_text(*words)[:15], 16))
    # rows of beams are not rows of answers: there the stop strings only cut the text afterwards
    criteria = StoppingCriteriaList([_Heard()] if beams == 1 else [])
    options = {**_sampling(job), **(job.others or {})}
    with torch.inference_mode():
        output = timed(
            lambda: model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=job.limit,
                stopping_criteria=criteria,
                pad_token_id=pad_token,
                eos_token_id=sorted(ends) or None,
                **options,
            )
        )
    for row, writer in enumerate(batch):
        if writer.finish:
            continue
        for token in output[row, skipped:].tolist():  # beams, or an answer without any token
            if writer.hear(token):
                break
        writer.finish = writer.finish or "length"


def _sampling(job: Job) -> dict[str, Any]:
    choice = job.choice
    if choice.is_greedy:
        return {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
    found: dict[str, Any] = {"do_sample": True, "temperature": choice.temperature, "top_p": choice.top_p}
    found["top_k"] = choice.top_k
    if choice.min_p:
        found["min_p"] = choice.min_p
    return found
