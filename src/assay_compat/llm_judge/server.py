"""Implementation of `lmms_eval.llm_judge.base`: the interface through which helpers call a judge."""

from __future__ import annotations

import abc
import asyncio
from typing import Any

from assay_compat.llm_judge.prompts import RUBRIC_JUDGE_PROMPT, JudgePromptBuilder, ResponseParser
from assay_compat.llm_judge.protocol import Request, Response, ServerConfig

__all__ = ["AsyncServerInterface", "ServerInterface"]


class ServerInterface(abc.ABC):
    """Interface of a judge for helper functions. Subclasses implement `evaluate`."""

    def __init__(self, config: ServerConfig | None = None) -> None:
        self.config = config or ServerConfig(model_name="gpt-4")

    @abc.abstractmethod
    def evaluate(self, request: Request) -> Response: ...

    @abc.abstractmethod
    def is_available(self) -> bool: ...

    def prepare_messages(self, request: Request) -> list[dict[str, Any]]:
        messages = list(request.messages)
        if self.config.system_prompt and all(message.get("role") != "system" for message in messages):
            messages.insert(0, {"role": "system", "content": self.config.system_prompt})
        return messages

    def evaluate_binary(
        self,
        question: str,
        answer: str,
        prediction: str,
        output_format: str = "0/1",
        custom_prompt: str | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        request, prompt = self._build_binary_request(
            question, answer, prediction, output_format, custom_prompt, **kwargs
        )
        response = self.evaluate(request)
        return _build_result(
            "result", ResponseParser.parse_binary_response(response.content, output_format), response, prompt
        )

    def evaluate_comparative(
        self,
        question: str,
        response1: str,
        response2: str,
        context: str | None = None,
        score_range: tuple[int, int] = (1, 10),
        custom_prompt: str | None = None,
        images: list[Any] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        request, prompt = self._build_comparative_request(
            question, response1, response2, context, score_range, custom_prompt, images, **kwargs
        )
        response = self.evaluate(request)
        return _build_result(
            "scores", ResponseParser.parse_comparative_response(response.content), response, prompt
        )

    def evaluate_with_rubric(
        self, question: str, prediction: str, rubric: dict[str, Any], **kwargs: Any
    ) -> dict[str, Any]:
        request, prompt = self._build_rubric_request(question, prediction, rubric)
        response = self.evaluate(request)
        return _build_result("scores", ResponseParser.parse_json_response(response.content), response, prompt)

    def _build_binary_request(
        self,
        question: str,
        answer: str,
        prediction: str,
        output_format: str,
        custom_prompt: str | None,
        **kwargs: Any,
    ) -> tuple[Request, str]:
        prompt = JudgePromptBuilder.build_binary_prompt(
            question=question,
            answer=answer,
            prediction=prediction,
            output_format=output_format,
            custom_prompt=custom_prompt,
            **kwargs,
        )
        messages = [{"role": "user", "content": prompt}]
        request = Request(
            messages=messages, question=question, answer=answer, prediction=prediction, config=self.config
        )
        return request, prompt

    def _build_comparative_request(
        self,
        question: str,
        response1: str,
        response2: str,
        context: str | None,
        score_range: tuple[int, int],
        custom_prompt: str | None,
        images: list[Any] | None,
        **kwargs: Any,
    ) -> tuple[Request, str]:
        prompt = JudgePromptBuilder.build_comparative_prompt(
            question=question,
            response1=response1,
            response2=response2,
            context=context,
            score_range=score_range,
            custom_prompt=custom_prompt,
            **kwargs,
        )
        request = Request(
            messages=[{"role": "user", "content": prompt}],
            question=question,
            response1=response1,
            response2=response2,
            context=context,
            images=images,
            config=self.config,
        )
        return request, prompt

    def _build_rubric_request(
        self, question: str, prediction: str, rubric: dict[str, Any]
    ) -> tuple[Request, str]:
        items = "\n".join(f"- {name}: {meaning}" for name, meaning in rubric.items())
        prompt = RUBRIC_JUDGE_PROMPT.format(question=question, prediction=prediction, rubric=items)
        messages = [{"role": "user", "content": prompt}]
        return Request(
            messages=messages, question=question, prediction=prediction, config=self.config
        ), prompt


class AsyncServerInterface(ServerInterface):
    """The same interface for helpers that run their own event loop."""

    def __init__(self, config: ServerConfig | None = None) -> None:
        super().__init__(config)
        self.semaphore = asyncio.Semaphore(self.config.max_concurrent)

    @abc.abstractmethod
    async def evaluate_async(self, request: Request) -> Response: ...

    async def evaluate_batch(self, requests: list[Request]) -> list[Response]:
        return list(await asyncio.gather(*(self.evaluate_async(request) for request in requests)))

    async def evaluate_binary_async(
        self,
        question: str,
        answer: str,
        prediction: str,
        output_format: str = "0/1",
        custom_prompt: str | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        request, prompt = self._build_binary_request(
            question, answer, prediction, output_format, custom_prompt, **kwargs
        )
        response = await self.evaluate_async(request)
        return _build_result(
            "result", ResponseParser.parse_binary_response(response.content, output_format), response, prompt
        )

    async def evaluate_binary_batch_async(
        self,
        questions: list[str],
        answers: list[str],
        predictions: list[str],
        output_format: str = "0/1",
        custom_prompt: str | None = None,
        **kwargs: Any,
    ) -> list[dict[str, Any]]:
        _require_equal_lengths(questions, answers, predictions)
        calls = (
            self.evaluate_binary_async(*one, output_format, custom_prompt, **kwargs)
            for one in zip(questions, answers, predictions, strict=True)
        )
        return list(await asyncio.gather(*calls))

    async def evaluate_comparative_async(
        self,
        question: str,
        response1: str,
        response2: str,
        context: str | None = None,
        score_range: tuple[int, int] = (1, 10),
        custom_prompt: str | None = None,
        images: list[Any] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        request, prompt = self._build_comparative_request(
            question, response1, response2, context, score_range, custom_prompt, images, **kwargs
        )
        response = await self.evaluate_async(request)
        return _build_result(
            "scores", ResponseParser.parse_comparative_response(response.content), response, prompt
        )

    async def evaluate_comparative_batch_async(
        self,
        questions: list[str],
        responses1: list[str],
        responses2: list[str],
        contexts: list[str | None] | None = None,
        score_range: tuple[int, int] = (1, 10),
        custom_prompt: str | None = None,
        images_list: list[Any] | None = None,
        **kwargs: Any,
    ) -> list[dict[str, Any]]:
        _require_equal_lengths(questions, responses1, responses2)
        nothing = [None] * len(questions)
        rows = zip(
            questions, responses1, responses2, contexts or nothing, images_list or nothing, strict=False
        )
        calls = (
            self.evaluate_comparative_async(
                question, first, second, context, score_range, custom_prompt, images, **kwargs
            )
            for question, first, second, context, images in rows
        )
        return list(await asyncio.gather(*calls))

    async def evaluate_with_rubric_async(
        self, question: str, prediction: str, rubric: dict[str, Any], **kwargs: Any
    ) -> dict[str, Any]:
        request, prompt = self._build_rubric_request(question, prediction, rubric)
        response = await self.evaluate_async(request)
        return _build_result("scores", ResponseParser.parse_json_response(response.content), response, prompt)


def _build_result(key: str, value: Any, response: Response, prompt: str) -> dict[str, Any]:
    return {
        key: value,
        "raw_response": response.content,
        "model": response.model_used,
        "prompt": prompt,
        "success": response.success,
    }


def _require_equal_lengths(*lists: list[Any]) -> None:
    if len({len(one) for one in lists}) > 1:
        raise ValueError("the lists must have equal lengths")
