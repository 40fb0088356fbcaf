"""Read responses from samples files: `samples_<task>_<date>.jsonl` of lm-eval, `<date>_samples_<task>.jsonl` of lmms-eval, and
those that Assay exports.

A row of lm-eval has the exact arguments of each request, which identify the response. A row of lmms-eval has only the index
of the document and the text of its first request: enough for tasks that ask once and generate, not for choices.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.core.errors import DatasetError
from assay.core.python_syntax import evaluate_literal
from assay.core.records.requests import Generate, Likelihood, Request
from assay.core.records.responses import LogProbability
from assay.store.journal.rows import encode_prompt

__all__ = ["ResponseNotFound", "SampleFiles", "find_sample_files", "parse_response"]

Value = str | LogProbability


class ResponseNotFound(LookupError):
    """The files have no response to a request."""


@dataclass(slots=True)
class _RecordedResponses:
    """The responses to one request, one per repeat, by document."""

    by_document: dict[int, list[Value]] = field(default_factory=dict)

    def pick(self, document: int) -> list[Value]:
        if document in self.by_document:
            return self.by_document[document]
        different = {tuple(map(str, values)) for values in self.by_document.values()}
        if len(different) > 1:
            raise ResponseNotFound("the file has different responses to this request for several documents")
        return next(iter(self.by_document.values()))


class SampleFiles:
    """All responses of the files, in memory."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Read them.

        Raises:
            DatasetError: A line is not JSON, or not a row of a samples file.
        """
        self._exact: dict[tuple[str, ...], _RecordedResponses] = {}
        self._settings: dict[str, list[str]] = {}
        """Prompt -> its generation settings, for error messages."""

        self._numbered: dict[tuple[str, int], dict[str, list[Value]]] = {}
        """(file, document) -> prompt -> responses, for files of lmms-eval."""

        for path in paths:
            for number, row in _read_rows(path):
                try:
                    self._add_row(path, row)
                except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
                    raise DatasetError(
                        f"not a row of a samples file: {type(error).__name__}: {error}",
                        where=f"{path}:{number}",
                        hint="`file` must be a samples file of lm-eval, lmms-eval or Assay",
                    ) from None

    def find(self, request: Request) -> Value:
        """The answer to a request.

        Raises:
            ResponseNotFound: The files have no response.
        """
        keys = _build_keys(request)
        for key in keys:
            if key in self._exact:
                return _get_repeat(self._exact[key].pick(request.document), request.repeat)
        return self._find_numbered(request, keys)

    def _find_numbered(self, request: Request, keys: Sequence[tuple[str, ...]]) -> Value:
        answers = self._numbered.get((request.task, request.document))
        if not isinstance(request, Generate):
            raise ResponseNotFound(
                "the file has no response to this request"
                if answers is None
                else "files of lmms-eval do not contain the choices"
            )
        if answers is not None:
            if request.prompt.text not in answers:
                raise ResponseNotFound(f"document {request.document} has another prompt in the file")
            return _get_repeat(answers[request.prompt.text], request.repeat)
        if asked := self._settings.get(keys[0][1]):
            own = _dump_settings(dict(request.settings.values))
            raise ResponseNotFound(
                f"the file has other generation settings for this prompt: {asked[0]}, not {own}"
            )
        raise ResponseNotFound("the file has no response to this request")

    def _add_row(self, path: Path, row: Mapping[str, Any]) -> None:
        document = int(row["doc_id"])
        if "arguments" not in row:
            answers = row["resps"] if "resps" in row else [row["filtered_resps"]]
            if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
                answers = []  # several requests: the row does not say which is which
            self._numbered.setdefault((_task_from_path(path), document), {})[str(row["input"])] = list(
                answers
            )
            return
        for (_, given), answers in zip(row["arguments"].items(), row["resps"], strict=True):
            arguments = list(given.values()) if isinstance(given, Mapping) else list(given)
            self._add_request(document, arguments, answers)

    def _add_request(self, document: int, arguments: Sequence[Any], answers: Sequence[Any]) -> None:
        prompt = _prompt_key(arguments[0])
        key: tuple[str, ...]
        match arguments[1:]:
            case []:
                key = ("rolling", prompt)
            case [dict() as settings, *_]:
                key = ("generate", prompt, _dump_settings(settings))
                known = self._settings.setdefault(prompt, [])
                if key[2] not in known:
                    known.append(key[2])
            case [continuation, *_]:
                key = ("likelihood", prompt, str(continuation))
        values = [parse_response(key[0], answer) for answer in answers if answer is not None]
        if values:
            self._exact.setdefault(key, _RecordedResponses()).by_document.setdefault(document, values)


def find_sample_files(path: Path) -> list[Path]:
    """Return the file, or the samples files in a folder.

    Raises:
        DatasetError: There is no samples file.
    """
    if path.is_file():
        return [path]
    found = sorted(path.glob("**/*samples_*.jsonl")) if path.is_dir() else []
    if not found:
        raise DatasetError(
            "there is no samples file",
            where=str(path),
            hint="`file` must be a samples file or a folder with samples_*.jsonl",
        )
    return found


def _read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise DatasetError("the line is not a JSON object", where=f"{path}:{number}")
                    yield number, row
    except OSError as error:
        raise DatasetError(f"the samples file cannot be read: {error.strerror}", where=str(path)) from None
    except ValueError as error:
        raise DatasetError(f"the samples file is not JSON lines: {error}", where=str(path)) from None


def _task_from_path(path: Path) -> str:
    """Return the task in a file name of lmms-eval: `20260101_120000_samples_mme.jsonl`."""
    return path.stem.partition("samples_")[2]


def _build_keys(request: Request) -> list[tuple[str, ...]]:
    """Return the keys of a request: with the prompt as Assay writes it, and as lm-eval writes a chat."""
    prompts = [encode_prompt(request.prompt)]
    if request.prompt.chat and not request.prompt.has_media:
        messages = [{"role": one.role, "content": one.text} for one in request.prompt.messages]
        prompts.append(_prompt_key(json.dumps(messages)))
    if isinstance(request, Generate):
        return [("generate", prompt, _dump_settings(dict(request.settings.values))) for prompt in prompts]
    if isinstance(request, Likelihood):
        return [("likelihood", prompt, request.continuation) for prompt in prompts]
    return [("rolling", prompt) for prompt in prompts]


def _prompt_key(prompt: Any) -> str:
    """Normalize a prompt: a chat that lm-eval wrote as JSON, whatever its whitespace."""
    text = str(prompt)
    if text.startswith(("[{", "[ {")):
        try:
            messages = json.loads(text)
        except ValueError:
            return text
        if all(isinstance(one, dict) and {"role", "content"} <= one.keys() for one in messages):
            plain = [{"role": one["role"], "content": one["content"]} for one in messages]
            return "chat " + json.dumps(plain, sort_keys=True)
    return text


def _dump_settings(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, default=str)


def parse_response(kind: str, answer: Any) -> Value:
    """Parse a response of a samples file to a `generate`, `likelihood` or `rolling` request."""
    if kind == "generate":
        return str(answer)
    if kind == "rolling":
        return LogProbability(float(answer[0] if isinstance(answer, list) else answer))
    if isinstance(answer, str):  # a pair written as a string
        answer = evaluate_literal(answer)
    total, greedy = answer
    return LogProbability(float(total), greedy if isinstance(greedy, bool) else str(greedy) == "True")


def _get_repeat(values: Sequence[Value], repeat: int) -> Value:
    if repeat >= len(values):
        raise ResponseNotFound(f"the file has {len(values)} responses to this request, not {repeat + 1}")
    return values[repeat]
