"""`generateContent`: a prompt as contents, settings as a configuration, a reply as an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from assay.core.errors import BadMedia
from assay.core.messages import Audio, Image, Part, Prompt, Text, Video
from assay.core.ports import Ability
from assay.core.requests import Generate
from assay.core.responses import Finish, Usage
from assay.models.remote.chat import Reading, Said, seed_of, stops_of
from assay.models.remote.faults import BadReply
from assay.models.remote.media import Look, Packed, pack_image, pack_sound, pack_video, pack_video_file
from assay.models.remote.options import Options

__all__ = ["ContentsWire", "read_content"]

_MOST_STOPS = 5
"""What the service takes; the rest is applied here."""

_FINISHES: Mapping[str, Finish] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "refused",
    "RECITATION": "refused",
    "BLOCKLIST": "refused",
    "PROHIBITED_CONTENT": "refused",
    "SPII": "refused",
    "IMAGE_SAFETY": "refused",
}
_HARMS = ("HARASSMENT", "HATE_SPEECH", "SEXUALLY_EXPLICIT", "DANGEROUS_CONTENT", "CIVIC_INTEGRITY")


@dataclass(frozen=True, slots=True)
class ContentsWire:
    """Google's protocol, with how much the model is to think and what it is not to block."""

    thinking_budget: int | None = None
    """Tokens for thinking: 0 for none, -1 for as many as the model likes; None: the model's own way."""

    safety_threshold: str = "BLOCK_NONE"
    thinking_level: str = ""
    """`MINIMAL` … `HIGH`, for models that are told so; empty: the model's own way."""

    service: str = "gemini"
    default_url: str = "https://generativelanguage.googleapis.com/v1beta"
    variables: tuple[str, ...] = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    abilities: frozenset[Ability] = field(
        default_factory=lambda: frozenset({"generate", "chat", "image", "audio", "video"})
    )
    optional: tuple[str, ...] = ("seed", "topK", "CIVIC_INTEGRITY")

    def headers(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key}

    def path(self, options: Options) -> str:
        return f"/models/{quote(options.model.removeprefix('models/'))}:generateContent"

    def payload(
        self, request: Generate, options: Options, look: Look, refused: frozenset[str]
    ) -> dict[str, Any]:
        system, contents = _contents(request.prompt, look)
        payload: dict[str, Any] = {
            "contents": contents,
            "generationConfig": self._settings(request, options, refused),
        }
        if system or options.system_prompt:
            payload["systemInstruction"] = {"parts": [{"text": system or options.system_prompt}]}
        if self.safety_threshold:
            payload["safetySettings"] = [
                {"category": f"HARM_CATEGORY_{harm}", "threshold": self.safety_threshold}
                for harm in _HARMS
                if harm not in refused
            ]
        return {**payload, **options.extra_body}

    def _settings(self, request: Generate, options: Options, refused: frozenset[str]) -> dict[str, Any]:
        settings = request.settings
        limit = options.max_gen_toks if settings.max_tokens is None else settings.max_tokens
        chosen: dict[str, Any] = {"temperature": settings.temperature, "maxOutputTokens": limit}
        if stops := stops_of(settings, options):
            chosen["stopSequences"] = list(stops[:_MOST_STOPS])
        if settings.values.get("top_p") is not None:
            chosen["topP"] = settings.top_p
        if settings.values.get("top_k") and "topK" not in refused:
            chosen["topK"] = settings.top_k
        seed = seed_of(settings, options, request.repeat)
        if seed is not None and "seed" not in refused:
            chosen["seed"] = seed
        if self.thinking_budget is not None:
            shown = {"includeThoughts": True} if self.thinking_budget else {}
            chosen["thinkingConfig"] = {"thinkingBudget": self.thinking_budget, **shown}
            chosen["maxOutputTokens"] = limit + max(0, self.thinking_budget)
        elif self.thinking_level:
            chosen["thinkingConfig"] = {"thinkingLevel": self.thinking_level, "includeThoughts": True}
        return chosen

    def read(self, value: Any) -> Reading:
        return read_content(value)


def read_content(value: Any) -> Reading:
    """A reply. A prompt that was blocked is a refusal.

    Raises:
        BadReply: It holds no answer, and no reason.
    """
    usage, model = _usage(value.get("usageMetadata")), str(value.get("modelVersion") or "")
    candidates = value.get("candidates")
    if not candidates:
        if value.get("promptFeedback", {}).get("blockReason"):
            return Reading((Said("", "refused"),), usage, model, "")
        raise BadReply("the reply has no candidates")
    candidate = candidates[0]
    reason = str(candidate.get("finishReason") or "")
    parts = candidate.get("content", {}).get("parts") or ()
    text = "".join([part.get("text", "") for part in parts if not part.get("thought")])
    thought = "".join([part.get("text", "") for part in parts if part.get("thought")])
    if not parts and reason not in _FINISHES:
        raise BadReply(f"the candidate has no parts: {reason or 'no reason'}")
    return Reading((Said(text, _FINISHES.get(reason, ""), thought or None),), usage, model, "")


def _usage(value: Any) -> Usage | None:
    """Tokens; thinking is counted apart from the answer there, and paid for as output."""
    if not isinstance(value, Mapping):
        return None
    written = int(value.get("candidatesTokenCount") or 0) + int(value.get("thoughtsTokenCount") or 0)
    cached = int(value.get("cachedContentTokenCount") or 0)
    return Usage(int(value.get("promptTokenCount") or 0), written, cached_tokens=cached)


def _contents(prompt: Prompt, look: Look) -> tuple[str, list[dict[str, Any]]]:
    """The system message, and the rest."""
    system = "\n\n".join(message.text for message in prompt.messages if message.role == "system")
    contents = [
        {
            "role": "model" if message.role == "assistant" else "user",
            "parts": [piece for part in message.parts for piece in _pieces(part, look)],
        }
        for message in prompt.messages
        if message.role != "system"
    ]
    return system, contents


def _pieces(part: Part, look: Look) -> list[dict[str, Any]]:
    match part:
        case Text(text=text):
            return [{"text": text}] if text else []
        case Image():
            return [_inline(pack_image(part, look))]
        case Audio():
            return [_inline(pack_sound(part))]
        case Video():
            return _video(part, look)


def _video(part: Video, look: Look) -> list[dict[str, Any]]:
    """A video as the file it is, with its stretch; as frames where there is no file or it is too large."""
    if look.whole_videos:
        try:
            packed = pack_video_file(part)
        except BadMedia:
            packed = None  # frames already
        if packed is not None and packed.nbytes <= look.max_bytes:
            ends = {"startOffset": part.start_s, "endOffset": part.end_s}
            stretch: dict[str, Any] = {
                key: f"{second:g}s" for key, second in ends.items() if second is not None
            }
            if look.fps:
                stretch["fps"] = look.fps
            return [_inline(packed) | ({"videoMetadata": stretch} if stretch else {})]
    return [_inline(frame) for frame in pack_video(part, look)]


def _inline(packed: Packed) -> dict[str, Any]:
    return {"inlineData": {"mimeType": packed.mime, "data": packed.text}}
