"""The largest number of tokens that a call can use, which a limit of tokens per minute reserves until the reply.

No tokenizer makes more tokens of a text than it has bytes in UTF-8. Chat templates add tokens for each message; media have
documented maxima until replies show how many tokens they take.

    bounds = TokenBounds(model="gpt-4o-mini")
    bound = bounds.compute(request.prompt, output_tokens=256)
    bound.total                                # to reserve
    bounds.learn(bound, usage)                 # if the reply shows more than expected
    bound.count(usage, "used")                 # what the service counts
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass

from assay.core.records.messages import Audio, Image, Prompt, Text, Video
from assay.core.records.requests import Generate
from assay.core.records.responses import Usage
from assay.core.records.tools import ToolCall, ToolResult
from assay.models.remote.protocol.media import MediaEncoding, encode_audio, encode_video_file
from assay.models.remote.rate_limits import TokenCounting

__all__ = ["PROBE_BOUND", "TokenBound", "TokenBounds", "count_bytes"]

_TOKENS_PER_CALL = 128
"""A chat template begins with its own system message if the prompt has none."""

_TOKENS_PER_MESSAGE = 16
_TOKENS_FOR_TOOLS = 512
"""How a template explains tools, beside their definitions."""

_CHARACTERS_PER_TOKEN = 4
"""OpenAI and Azure estimate the tokens of a prompt from its characters when a call arrives."""

_UNLIMITED_OUTPUT_TOKENS = 16_384
"""For answers without a limit, until a longer one is seen."""

_IMAGE_TOKENS = 16_384
"""Documented maximum of Qwen2.5-VL. OpenAI, Anthropic and Gemini need fewer, with the exceptions below."""

_IMAGE_TOKENS_BY_MODEL = {"gpt-4o-mini": 48_169}
_AUDIO_TOKENS_PER_S = 50.0
"""Of Whisper's encoder. Gemini makes 32, OpenAI 10, Qwen2-Audio 25."""

_AUDIO_BYTES_PER_S = 16_000 * 2 * 4 / 3
_VIDEO_TOKENS_PER_BYTE = 1 / 40
"""Gemini makes 300 of a second, which has 12 kB even at 100 kbit/s."""

_CALLS_TO_LEARN = 20
_LEARNED_MARGIN = 1.5


@dataclass(frozen=True, slots=True)
class TokenBound:
    """The largest number of tokens of a call."""

    prompt: int
    output: int
    characters: int = 0
    """Characters of the prompt."""

    media: tuple[str, float] = ("", 0.0)
    """The only kind of media in the prompt and its amount: parts, seconds or bytes."""

    learned: tuple[int, int] = (0, 0)
    """Tokens of the prompt and of the output that earlier replies added."""

    @property
    def total(self) -> int:
        """The tokens to reserve."""
        return self.prompt + self.output

    def count(self, usage: Usage | None, counting: TokenCounting) -> int | None:
        """Return the tokens that the service counts for the call; None if the reply does not report them.

        >>> bound = TokenBound(prompt=400, output=100, characters=400)
        >>> bound.count(Usage(90, 5), "used"), bound.count(Usage(90, 5), "requested")
        (95, 200)
        """
        if usage is None or not usage.input_tokens:
            return None
        if counting == "used":
            return usage.input_tokens + usage.output_tokens
        estimate = math.ceil(self.characters / _CHARACTERS_PER_TOKEN)
        return max(usage.input_tokens, estimate) + max(usage.output_tokens, self.output)


PROBE_BOUND = TokenBound(prompt=2048, output=64)
"""For calls that probe a server: a short question with a small image or half a second of audio."""


class TokenBounds:
    """Computes bounds for the calls of one model, and learns from replies."""

    def __init__(self, model: str, *, media: MediaEncoding | None = None, system_prompt: str = "") -> None:
        self.count_text_tokens: Callable[[str], int] = count_bytes
        """Bytes, or the tokens of the model's tokenizer if it is known."""

        self._media = media or MediaEncoding()
        self._system_prompt = system_prompt
        image = max((n for name, n in _IMAGE_TOKENS_BY_MODEL.items() if name in model), default=_IMAGE_TOKENS)
        self._media_rates = {"image": image, "audio": _AUDIO_TOKENS_PER_S, "video": _VIDEO_TOKENS_PER_BYTE}
        """Documented tokens per image or frame, second of audio, byte of a video file."""

        self._seen: dict[str, tuple[int, float]] = {}
        """By kind of media: replies, and the most tokens per unit."""

        self._prompt_excess = 0
        self._output_excess = 0
        """By how much replies exceeded their bounds, such as a system prompt that the server adds."""

        self._longest_output = _UNLIMITED_OUTPUT_TOKENS

    def compute(
        self, prompt: Prompt, output_tokens: int | None, request: Generate | None = None
    ) -> TokenBound:
        """Return the bound of a call; `output_tokens` of None means that the answer has no limit.

        Blocks while media are encoded, unless they were before; call it in the thread that writes the body.
        """
        texts = [self._system_prompt]
        amounts: dict[str, float] = {}
        for message in prompt.messages:
            for part in message.parts:
                match part:
                    case Text(text=text) | ToolResult(content=text):
                        texts.append(text)
                    case ToolCall(name=name, arguments=arguments):
                        texts.append(f"{name} {arguments}")
                    case Image():
                        amounts["image"] = amounts.get("image", 0) + 1
                    case Video() if self._media.whole_videos:
                        amounts["video"] = amounts.get("video", 0) + encode_video_file(part).nbytes
                    case Video():
                        amounts["image"] = amounts.get("image", 0) + self._media.max_frames
                    case Audio():
                        seconds = encode_audio(part).nbytes / _AUDIO_BYTES_PER_S
                        amounts["audio"] = amounts.get("audio", 0) + seconds
        overhead = _TOKENS_PER_CALL + _TOKENS_PER_MESSAGE * (len(prompt.messages) + 1)
        if request is not None and (request.native_tools or request.response_format):
            texts.append(_write_definitions(request))
            overhead += _TOKENS_FOR_TOOLS
        tokens = overhead + self._prompt_excess + sum(self.count_text_tokens(text) for text in texts if text)
        tokens += math.ceil(sum(amount * self._find_rate(kind) for kind, amount in amounts.items()))
        return TokenBound(
            tokens,
            self._bound_output(output_tokens),
            sum(map(len, texts)),
            next(iter(amounts.items())) if len(amounts) == 1 else ("", 0.0),
            (self._prompt_excess, self._output_excess),
        )

    def compute_plain(self, prompt_tokens: int, output_tokens: int | None, characters: int = 0) -> TokenBound:
        """Return the bound of a call without a chat template, whose prompt has at most `prompt_tokens`."""
        return TokenBound(
            prompt_tokens + self._prompt_excess,
            self._bound_output(output_tokens),
            characters,
            learned=(self._prompt_excess, self._output_excess),
        )

    def learn(self, bound: TokenBound, usage: Usage | None) -> None:
        """Learn from the reply to a call; other replies may have arrived since its bound was computed."""
        if usage is None:
            return
        prompt_excess, output_excess = bound.learned
        kind, amount = bound.media
        if kind and amount:
            calls, most = self._seen.get(kind, (0, 0.0))
            self._seen[kind] = (calls + 1, max(most, usage.input_tokens / amount))
        else:
            self._prompt_excess = max(self._prompt_excess, usage.input_tokens - bound.prompt + prompt_excess)
        self._output_excess = max(self._output_excess, usage.output_tokens - bound.output + output_excess)
        self._longest_output = max(self._longest_output, usage.output_tokens)

    def _bound_output(self, output_tokens: int | None) -> int:
        limit = self._longest_output if output_tokens is None else output_tokens
        return limit + self._output_excess

    def _find_rate(self, kind: str) -> float:
        """Return the tokens per unit: documented ones, until enough replies show them."""
        documented = self._media_rates[kind]
        calls, most = self._seen.get(kind, (0, 0.0))
        learned = most * _LEARNED_MARGIN
        return learned if calls >= _CALLS_TO_LEARN or learned > documented else documented


def count_bytes(text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _write_definitions(request: Generate) -> str:
    tools = request.native_tools
    parts = [] if tools is None else [tool.to_json() for tool in tools.tools]
    if request.response_format is not None:
        parts.append(request.response_format.to_json())
    return json.dumps(parts, ensure_ascii=False, default=str)
