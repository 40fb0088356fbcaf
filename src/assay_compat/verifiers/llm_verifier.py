"""Implementation of `lmms_eval.verifiers.openai`: a verifier that calls a judge."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from typing import Any

from assay_compat.llm_judge.factory import get_server
from assay_compat.llm_judge.protocol import Request, ServerConfig
from assay_compat.verifiers.interfaces import Verifier, VerifyResult, parse_binary_response

__all__ = ["OpenAIVerifier"]

_LOG = logging.getLogger(__name__)


class OpenAIVerifier(Verifier):
    """Verifies with a judge. If the judge fails, sets `metadata["judge_failed"]`; in a run the document is unscored."""

    def __init__(
        self,
        model: str = "gpt-4o-2024-11-20",
        api_type: str | None = None,
        judge_type: str = "binary",
        custom_prompt: str | Callable[..., str] | None = None,
        response_format: str = "binary",
        response_parser: Callable[[str], VerifyResult] | None = None,
        score_range: tuple[float, float] = (0.0, 10.0),
        max_retries: int = 5,
        retry_delay: float = 2.0,
        temperature: float = 0.0,
        max_tokens: int = 1024,
    ) -> None:
        self.judge_type = judge_type
        self.custom_prompt = custom_prompt
        self.response_format = response_format
        self.response_parser = response_parser
        self.score_range = score_range
        self.max_retries = max_retries
        self.retry_delay = retry_delay
        config = ServerConfig(
            model_name=model,
            temperature=temperature,
            max_tokens=max_tokens,
            num_retries=max_retries,
            retry_delay=retry_delay,
        )
        self._server = get_server(server_name=api_type or os.getenv("API_TYPE", "openai"), config=config)

    def verify(self, question: str, prediction: str, ground_truth: str, **kwargs: Any) -> VerifyResult:
        try:
            return self._verify(question, prediction, ground_truth, **kwargs)
        except Exception as error:  # noqa: BLE001 - lmms-eval's contract: never raises
            _LOG.info("the judge failed: %s", error)  # the run reports it
            return _build_failure(f"error: {error}")

    def _verify(self, question: str, prediction: str, ground_truth: str, **kwargs: Any) -> VerifyResult:
        if self.custom_prompt is not None:
            request = Request(
                messages=[
                    {
                        "role": "user",
                        "content": self._format_prompt(question, prediction, ground_truth, **kwargs),
                    }
                ],
                images=kwargs.get("images"),
                config=self._server.config,
            )
            return self._parse(self._server.evaluate(request).content)
        if self.judge_type == "binary":
            return self._verify_binary(question, prediction, ground_truth, **kwargs)
        if self.judge_type == "comparative":
            return self._verify_comparative(question, prediction, ground_truth, **kwargs)
        raise ValueError(f"Unknown judge_type: {self.judge_type!r}")

    def _format_prompt(self, question: str, prediction: str, ground_truth: str, **kwargs: Any) -> str:
        if callable(self.custom_prompt):
            return self.custom_prompt(question, prediction, ground_truth, **kwargs)
        return str(self.custom_prompt).format(
            question=question, prediction=prediction, ground_truth=ground_truth, **kwargs
        )

    def _verify_binary(
        self, question: str, prediction: str, ground_truth: str, **kwargs: Any
    ) -> VerifyResult:
        result = self._server.evaluate_binary(
            question=question,
            answer=ground_truth,
            prediction=prediction,
            output_format=kwargs.get("output_format", "0/1"),
        )
        if not result["success"]:
            return _build_failure(result["raw_response"], model=result["model"])
        correct = bool(result["result"])
        return VerifyResult(float(correct), correct, result["raw_response"], {"model": result["model"]})

    def _verify_comparative(
        self, question: str, prediction: str, ground_truth: str, **kwargs: Any
    ) -> VerifyResult:
        result = self._server.evaluate_comparative(
            question=question,
            response1=prediction,
            response2=kwargs.get("reference_response", ground_truth),
            images=kwargs.get("images"),
        )
        if not result["success"]:
            return _build_failure(result["raw_response"], model=result["model"])
        first, second = result["scores"]
        low, high = self.score_range
        share = max(0.0, min(1.0, (first - low) / (high - low))) if high > low else 0.0
        metadata = {"score_1": first, "score_2": second, "model": result["model"]}
        return VerifyResult(share, first > second, result["raw_response"], metadata)

    def _parse(self, text: str) -> VerifyResult:
        if self.response_parser is not None:
            return self.response_parser(text)
        if self.response_format == "binary":
            correct = parse_binary_response(text)
            return VerifyResult(float(correct), correct, text)
        if self.response_format == "score":
            share = _parse_normalized_score(text, self.score_range)
            return VerifyResult(share, share >= 0.5, text)
        raise ValueError(f"Unknown response_format: {self.response_format!r}")


def _parse_normalized_score(text: str, score_range: tuple[float, float]) -> float:
    """Return the first number of a text, normalized to the score range."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", text)
    if not numbers:
        return 0.0
    number, (low, high) = float(numbers[0]), score_range
    if high == low:
        return 1.0 if number >= high else 0.0
    return max(0.0, min(1.0, (number - low) / (high - low)))


def _build_failure(raw_output: str, **metadata: Any) -> VerifyResult:
    return VerifyResult(0.0, False, raw_output, {**metadata, "judge_failed": True})
