"""`lint-benchmark`: problems in the documents of a benchmark, found in the scores of several runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import UserError
from assay.stats.answer_keys import MIN_DOUBT, doubt_key, estimate_abilities
from assay.stats.intervals.confidence_intervals import wilson_interval
from assay.stats.item_analysis import analyse_items, measure_position_bias
from assay.store.documents.score_tables import DocumentExcerpt, ScoreTable, ScoreTableSource
from assay.viewer.analysis.near_duplicates import find_near_duplicates, is_similar, normalise_text
from assay.viewer.comparison.pairing import pair_documents, scores_from_column

__all__ = ["LintFinding", "lint_benchmark"]

Floats = NDArray[np.float64]

_MAX_INSPECTED = 2000
"""The number of documents whose prompts are read."""

_MAX_LISTED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFinding:
    """One possible problem of a benchmark."""

    kind: str
    """never, always, negative, wrong-key, duplicates, near-duplicates, contradictions, leakage, constant, position, blind"""

    task: str
    what: str
    count: int
    total: int
    documents: tuple[int, ...] = ()
    """The first or the most extreme documents."""

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


def lint_benchmark(
    sources: Sequence[ScoreTableSource], blind: ScoreTableSource | None = None
) -> list[LintFinding]:
    """Check every task that all runs share; `blind` is a run without the images.

    Raises:
        UserError: The runs share no task.
    """
    shared = [task for task in sources[0].tasks if all(task in source.tasks for source in sources)]
    if not shared:
        raise UserError("the runs have no task in common", hint="pass runs of the same benchmark")
    found: list[LintFinding] = []
    for task in shared:
        tables = [sources[0].read_score_table(task)]
        tables += [source.read_score_table(task, tables[0].kind) for source in sources[1:]]
        if any(table.kind != tables[0].kind for table in tables):
            tables = [source.read_score_table(task, "files") for source in sources]
        fields = _read_fields(sources[0], task)
        sample = sources[0].read_excerpts(task, tables[0].documents[:_MIN_DOCUMENTS])
        targets = _find_target_fields(tables[0], fields, sample)
        found += _find_duplicates(tables[0])
        found += _find_similar_documents(tables[0], fields, targets)
        if len(sources) > 1:
            found += _find_item_problems(tables)
        if len(sources) >= _MIN_MODELS_FOR_KEYS:
            found += _find_wrong_keys(sources, tables)
        found += _find_leakage(sources, tables)
        for number, (source, table) in enumerate(zip(sources, tables, strict=True)):
            excerpts = list(source.read_excerpts(task, table.documents[:_MAX_INSPECTED]).values())
            if number == 0:
                found += _find_constant_targets(task, excerpts)
                found += _find_uneven_keys(task, excerpts)
            found += _find_constant_answers(source.name, table, excerpts)
            found += _find_position_bias(source.name, task, excerpts)
        if blind is not None and task in blind.tasks:
            found += _find_blind_answers(tables[0], blind.read_score_table(task, tables[0].kind))
    return found


_MIN_MODELS_FOR_KEYS = 4
_IDENTIFIER = re.compile(r"(^|_)(id|idx|index|uuid|hash|number|url)s?$", re.IGNORECASE)


def _read_fields(source: ScoreTableSource, task: str) -> dict[str, list[str]]:
    """Return the fields of all documents as text, without identifiers, which differ between duplicates."""
    found = {}
    for name in source.field_names(task):
        values = ["" if value is None else str(value) for value in source.field(task, name)]
        if not _is_identifier(name, values):
            found[name] = values
    return found


def _is_identifier(name: str, values: Sequence[str]) -> bool:
    if _IDENTIFIER.search(name):
        return True
    distinct = len(set(values)) == len(values) > 1
    return distinct and all(re.fullmatch(r"[\w.:-]*\d[\w.:-]*", value) for value in values)


def _find_target_fields(
    table: ScoreTable, fields: Mapping[str, Sequence[str]], excerpts: Mapping[int, DocumentExcerpt]
) -> frozenset[str]:
    """Return the fields that contain the target of every inspected document."""
    rows = {document: row for row, document in enumerate(table.documents[:_MIN_DOCUMENTS])}
    known = {rows[one]: excerpt.target.strip() for one, excerpt in excerpts.items() if excerpt.target.strip()}
    if not known:
        return frozenset()
    return frozenset(
        name
        for name, values in fields.items()
        if all(values[row].strip() == target for row, target in known.items())
    )


def _find_duplicates(table: ScoreTable) -> Iterator[LintFinding]:
    """Find documents that occur more than once."""
    if extra := _list_duplicates(table):
        yield LintFinding(
            kind="duplicates",
            task=table.task,
            what="documents are duplicates of others: they count twice and make the interval too narrow",
            count=len(extra),
            total=len(table.documents),
            documents=tuple(extra[:_MAX_LISTED]),
        )


def _list_duplicates(table: ScoreTable) -> list[int]:
    seen: dict[Any, int] = {}
    return [
        document
        for document, content in zip(table.documents, table.content_digests, strict=True)
        if content is not None and seen.setdefault(content, document) != document
    ]


_MIN_FIELD_SIMILARITY = 0.6
"""Two documents are similar only if each of their fields is: questions about the same long text are not."""


def _find_similar_documents(
    table: ScoreTable, fields: Mapping[str, Sequence[str]], targets: frozenset[str]
) -> Iterator[LintFinding]:
    """Find documents that are nearly the same as others, and those that are but have another target."""
    known = set(_list_duplicates(table))
    whole = _find_similar_rows(list(fields.values()))
    near = [pair for pair in _to_documents(table, whole) if pair[0] not in known]
    contradictory: list[tuple[int, int]] = []
    if targets and len(targets) < len(fields):
        asked = [values for name, values in fields.items() if name not in targets]
        different = [
            (later, earlier)
            for later, earlier in _find_similar_rows(asked)
            if any(
                normalise_text(fields[name][later]) != normalise_text(fields[name][earlier])
                for name in targets
            )
        ]
        contradictory = _to_documents(table, different)
        near = [pair for pair in near if pair not in set(contradictory)]
    if near:
        yield _build_pair_finding(
            "near-duplicates",
            table,
            "documents differ from others only in case, spaces, punctuation or a few letters",
            near,
        )
    if contradictory:
        yield _build_pair_finding(
            "contradictions",
            table,
            "documents ask the same as others, or nearly the same, but have another target",
            contradictory,
        )


def _find_similar_rows(columns: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """Return (row, earlier row) of documents all of whose fields are similar."""
    ordered = sorted(
        columns, key=lambda values: sum(map(len, values))
    )  # the end of a long text is not compared

    def confirm(later: int, earlier: int) -> bool:
        return all(is_similar(values[later], values[earlier], _MIN_FIELD_SIMILARITY) for values in ordered)

    return find_near_duplicates([" ".join(values) for values in zip(*ordered, strict=True)], confirm)


def _to_documents(table: ScoreTable, rows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(table.documents[later], table.documents[earlier]) for later, earlier in rows]


def _build_pair_finding(
    kind: str, table: ScoreTable, what: str, pairs: Sequence[tuple[int, int]]
) -> LintFinding:
    shown = ", ".join(f"{later} like {earlier}" for later, earlier in pairs[:3])
    return LintFinding(
        kind=kind,
        task=table.task,
        what=f"{what} ({shown}{', …' if len(pairs) > 3 else ''})",
        count=len(pairs),
        total=len(table.documents),
        documents=tuple(later for later, _ in pairs[:_MAX_LISTED]),
    )


def _find_item_problems(tables: Sequence[ScoreTable]) -> Iterator[LintFinding]:
    """Find documents that no run or every run gets right, and those on which weaker models score higher."""
    scores, rows = _build_score_matrix(tables)
    if scores.shape[1] < 2:
        return
    found, first = analyse_items(scores), tables[0]
    by_chance = round(0.05 * int(np.isfinite(found.discrimination).sum()))
    texts = {
        "never": "documents that no run gets right: too hard, or the target is wrong",
        "always": "documents that every run gets right: they do not distinguish the models",
        "negative": "documents on which weaker models score higher: the target may be wrong"
        f" (about {by_chance} expected by chance; the most extreme first)",
    }
    for kind, places in (("never", found.never), ("always", found.always), ("negative", found.negative)):
        if len(places):
            named = tuple(first.documents[rows[place]] for place in places[:_MAX_LISTED].tolist())
            yield LintFinding(
                kind=kind,
                task=first.task,
                what=texts[kind],
                count=len(places),
                total=scores.shape[1],
                documents=named,
            )


def _build_score_matrix(tables: Sequence[ScoreTable]) -> tuple[Floats, list[int]]:
    """Return scores with a row per run and a column per document scored in all; and their rows in the first run."""
    empty: tuple[Floats, list[int]] = (np.empty((len(tables), 0)), [])
    columns = [scores_from_column(next(iter(table.columns.values()))) for table in tables if table.columns]
    if len(columns) < len(tables):
        return empty
    size = len(tables[0].documents)
    scores = np.full((len(tables), size), np.nan)
    for index, (table, column) in enumerate(zip(tables, columns, strict=True)):
        if column is None:
            return empty
        pairing = pair_documents(tables[0], table)
        scores[index, pairing.first] = column[pairing.second]
    kept = np.flatnonzero(~np.isnan(scores).any(axis=0))
    return scores[:, kept], kept.tolist()


def _find_wrong_keys(
    sources: Sequence[ScoreTableSource], tables: Sequence[ScoreTable]
) -> Iterator[LintFinding]:
    """Find documents whose key the strong models contradict with one common answer."""
    scores, rows = _build_score_matrix(tables)
    if scores.shape[1] < _MIN_DOCUMENTS_FOR_KEYS or scores.min() < 0 or scores.max() > 1:
        return
    right = scores >= 0.5
    abilities = estimate_abilities(right)
    strong = abilities >= np.median(abilities)
    suspects = np.flatnonzero(right[strong].mean(axis=0) < 0.5)
    task, first = tables[0].task, tables[0]
    pairings = [dict(zip(*_list_pairs(first, table), strict=True)) for table in tables]
    names = [
        [table.documents[pairs[rows[place]]] for place in suspects]
        for table, pairs in zip(tables, pairings, strict=True)
    ]
    excerpts = [source.read_excerpts(task, numbers) for source, numbers in zip(sources, names, strict=True)]
    pipelines = [next(iter(table.columns.values())).pipeline for table in tables]
    doubts = []
    for index, place in enumerate(suspects.tolist()):
        answers: list[Any] = []
        choices: int | None = None
        for model, numbers in enumerate(names):
            excerpt = excerpts[model].get(numbers[index], DocumentExcerpt(document=0))
            answer, count = _read_answer(excerpt, pipelines[model])
            choices = count or choices
            answers.append(_KEY if right[model, place] else answer)
        doubt = doubt_key(answers, _KEY, abilities, choices=choices)
        if doubt.probability > MIN_DOUBT:
            doubts.append((doubt.probability, first.documents[rows[place]], doubt))
    doubts.sort(key=lambda one: (-one[0], one[1]))
    if doubts:
        shown = ", ".join(
            f"{document}: {one.supporters} of {len(tables)} answer {str(one.answer)[:30]!r}"
            for _, document, one in doubts[:3]
        )
        yield LintFinding(
            kind="wrong-key",
            task=task,
            what="documents on which strong models agree on another answer than the target: it is probably wrong"
            f" ({shown}{', …' if len(doubts) > 3 else ''})",
            count=len(doubts),
            total=scores.shape[1],
            documents=tuple(document for _, document, _ in doubts[:_MAX_LISTED]),
        )


_KEY = object()
"""Stands for the answer of a model that the metric counts as right."""

_MIN_DOCUMENTS_FOR_KEYS = 20


def _list_pairs(first: ScoreTable, table: ScoreTable) -> tuple[list[int], list[int]]:
    pairing = pair_documents(first, table)
    return pairing.first.tolist(), pairing.second.tolist()


def _read_answer(excerpt: DocumentExcerpt, pipeline: str) -> tuple[Any, int | None]:
    """Return the answer of a model and the number of choices, None for an open question."""
    chosen = _read_choice(excerpt)
    if chosen is not None:
        return f"choice {chosen + 1}", len(excerpt.responses)
    text = excerpt.answers.get(pipeline) or " | ".join(excerpt.responses)
    return normalise_text(text) or text, None


def _read_choice(excerpt: DocumentExcerpt) -> int | None:
    """Return the choice with the highest log probability; None if the responses are texts."""
    if len(excerpt.responses) < 2:
        return None
    try:
        return int(np.argmax([float(text) for text in excerpt.responses]))
    except ValueError:
        return None


def _find_leakage(sources: Sequence[ScoreTableSource], tables: Sequence[ScoreTable]) -> Iterator[LintFinding]:
    """Find questions that occur in their own few-shot examples, in the first run that has examples.

    A question occurs once in a prompt without leakage, whatever separates the examples, as text or as chat messages.
    """
    both = zip(sources, tables, strict=True)
    found = next(((source, table) for source, table in both if table.facts.get("few-shot examples")), None)
    if found is None:
        return
    source, table = found
    documents = table.documents[:_MAX_INSPECTED]
    excerpts = source.read_excerpts(table.task, documents)
    prompts = {document: normalise_text(one.prompt) for document, one in excerpts.items()}
    questions = _find_questions(_read_fields(source, table.task), documents, prompts) or _read_last_lines(
        excerpts
    )
    leaked = [
        document
        for document, question in questions.items()
        if len(question) >= _MIN_QUESTION_LENGTH
        and _is_leaked(prompts[document], question, excerpts[document])
    ]
    if leaked:
        yield LintFinding(
            kind="leakage",
            task=table.task,
            what="questions occur in their own few-shot examples, with the answer",
            count=len(leaked),
            total=len(excerpts),
            documents=tuple(leaked[:_MAX_LISTED]),
        )


_MIN_QUESTION_LENGTH = 8


def _is_leaked(prompt: str, question: str, excerpt: DocumentExcerpt) -> bool:
    """Whether a question occurs before the place where it is asked, followed by its target unless that is a choice."""
    prompt, question = f" {prompt} ", f" {question} "
    first, last = prompt.find(question), prompt.rfind(question)
    if first == last:
        return False
    target = "" if _read_choice(excerpt) is not None else normalise_text(excerpt.target)
    return not target or f" {target} " in prompt[first + len(question) - 1 : last + 1]


def _find_questions(
    fields: Mapping[str, Sequence[str]], documents: Sequence[int], prompts: Mapping[int, str]
) -> dict[int, str]:
    """Return the field that identifies a document in its prompt: the one with the most distinct values, the longest of several."""
    best: tuple[tuple[float, float], dict[int, str]] = ((0.0, 0.0), {})
    for values in fields.values():
        plain = {document: normalise_text(value) for document, value in zip(documents, values, strict=False)}
        inside = [
            text
            for document, text in plain.items()
            if len(text) >= _MIN_QUESTION_LENGTH and text in prompts.get(document, "")
        ]
        if len(inside) < 0.9 * len(prompts):
            continue  # not part of the prompt
        rank = (round(len(set(inside)) / len(inside), 1), sum(map(len, inside)) / len(inside))
        best = max(best, (rank, plain), key=lambda one: one[0])
    return best[1]


def _read_last_lines(excerpts: Mapping[int, DocumentExcerpt]) -> dict[int, str]:
    """Return the last lines of prompts that are not the same for most documents, for files without documents."""
    lines = {
        document: [normalise_text(line) for line in one.prompt.splitlines() if normalise_text(line)]
        for document, one in excerpts.items()
    }
    usual = Counter(line for listed in lines.values() for line in set(listed))
    found = {}
    for document, listed in lines.items():
        own = [line for line in listed[-4:] if usual[line] <= max(1, 0.5 * len(lines))]
        if own:
            found[document] = max(own, key=len)
    return found


def _find_constant_targets(task: str, excerpts: Sequence[DocumentExcerpt]) -> Iterator[LintFinding]:
    """Find a target that most documents share: a constant answer gets a high score."""
    targets = Counter(excerpt.target for excerpt in excerpts if _read_choice(excerpt) is None)
    total = targets.total()
    if total < _MIN_DOCUMENTS or not targets:
        return
    target, count = targets.most_common(1)[0]
    if wilson_interval(count, total, level=0.99).low > max(0.6, 1.2 / len(targets)) or len(targets) == 1:
        yield LintFinding(
            kind="constant",
            task=task,
            what=f"the target is {target[:40]!r} in {100 * count / total:.0f} % of documents: a constant answer gets this score",
            count=count,
            total=total,
        )


_MIN_DOCUMENTS = 20


def _find_constant_answers(
    run: str, table: ScoreTable, excerpts: Sequence[DocumentExcerpt]
) -> Iterator[LintFinding]:
    """Find a run that gives the same answer to nearly all documents although their targets differ."""
    if not table.columns:
        return
    pipeline = next(iter(table.columns.values())).pipeline
    answers = Counter(str(_read_answer(excerpt, pipeline)[0]) for excerpt in excerpts)
    targets = Counter(excerpt.target for excerpt in excerpts)
    if answers.total() < _MIN_DOCUMENTS:
        return
    answer, count = answers.most_common(1)[0]
    usual = targets.most_common(1)[0][1]
    if count >= 0.9 * answers.total() and count > 1.2 * usual:
        yield LintFinding(
            kind="constant",
            task=table.task,
            what=f"`{run}` answers {answer[:40]!r} to {100 * count / answers.total():.0f} % of documents:"
            " the extraction or the prompt may be wrong",
            count=count,
            total=answers.total(),
        )


def _read_positions(excerpts: Sequence[DocumentExcerpt]) -> tuple[list[int], list[int], Counter[int]]:
    """Return the chosen and the correct position of each multiple-choice document, and the numbers of choices."""
    chosen, correct, counts = [], [], Counter[int]()
    for excerpt in excerpts:
        position, places = _read_choice(excerpt), len(excerpt.responses)
        if position is not None and excerpt.target.isdigit() and int(excerpt.target) < places:
            counts[places] += 1
            chosen.append(position)
            correct.append(int(excerpt.target))
    return chosen, correct, counts


def _find_position_bias(run: str, task: str, excerpts: Sequence[DocumentExcerpt]) -> Iterator[LintFinding]:
    """Find a position that a model chooses more often than it is correct in the same documents."""
    chosen, correct, counts = _read_positions(excerpts)
    if len(chosen) < _MIN_DOCUMENTS:
        return
    shares, wanted, p_value = measure_position_bias(chosen, correct, max(counts))
    if p_value < 0.01:
        preferred = int(np.argmax(shares - wanted))
        text = f"`{run}` chooses position {preferred + 1} in {100 * shares[preferred]:.0f} % of documents; it is the target in {100 * wanted[preferred]:.0f} %"
        yield LintFinding(
            kind="position", task=task, what=text, count=chosen.count(preferred), total=len(chosen)
        )


def _find_uneven_keys(task: str, excerpts: Sequence[DocumentExcerpt]) -> Iterator[LintFinding]:
    """Find a position that is correct too often."""
    _, correct, counts = _read_positions(excerpts)
    if len(counts) != 1 or len(correct) < _MIN_DOCUMENTS:
        return
    even = 1 / max(counts)
    often, count = Counter(correct).most_common(1)[0]
    if wilson_interval(count, len(correct), level=0.99).low > 1.2 * even:
        text = f"the target is at position {often + 1} in {100 * count / len(correct):.0f} % of documents instead of {100 * even:.0f} %"
        yield LintFinding(kind="position", task=task, what=text, count=count, total=len(correct))


def _find_blind_answers(table: ScoreTable, other: ScoreTable) -> Iterator[LintFinding]:
    """Compare the score with that of a run without the images."""
    pairing = pair_documents(table, other)
    columns = [scores_from_column(next(iter(one.columns.values()))) for one in (table, other) if one.columns]
    if len(columns) < 2 or columns[0] is None or columns[1] is None:
        return
    seen, unseen = columns[0][pairing.first], columns[1][pairing.second]
    kept = ~(np.isnan(seen) | np.isnan(unseen))
    if not kept.any():
        return
    right = kept & (unseen > 0)
    share = float(unseen[kept].mean()) / max(float(seen[kept].mean()), 1e-9)
    text = (
        f"documents are answered correctly without the image: {float(unseen[kept].mean()):.4f} compared with {float(seen[kept].mean()):.4f}"
        f" with it, {100 * share:.0f} % of the score"
    )
    named = tuple(table.documents[pairing.first[row]] for row in np.flatnonzero(right)[:_MAX_LISTED].tolist())
    yield LintFinding(
        kind="blind",
        task=table.task,
        what=text,
        count=int(right.sum()),
        total=int(kept.sum()),
        documents=named,
    )
