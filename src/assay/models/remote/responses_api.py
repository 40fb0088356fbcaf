"""The responses API: the same questions in another form. It knows neither stop strings nor seeds; stops are applied here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.core.messages import Audio, Image, Message, Part, Prompt, Text, Video
from assay.core.requests import Settings
from assay.core.responses import Finish
from assay.models.remote.chat import FINISHES, Reading, Said, further_settings, read_usage
from assay.models.remote.faults import BadReply
from assay.models.remote.media import Look, pack_image, pack_sound, pack_video, pack_video_file
from assay.models.remote.options import Options
from assay.models.remote.seen import Seen

__all__ = ["PATH", "read_responses", "responses_fields", "responses_input"]

PATH = "/responses"
_LEAST_TOKENS = 16
"""OpenAI refuses a smaller limit."""


def responses_fields(settings: Settings, options: Options, seen: Seen) -> dict[str, Any]:
    """Everything of a call but its messages."""
    limit = options.max_gen_toks if settings.max_tokens is None else settings.max_tokens
    fields: dict[str, Any] = {
        "model": options.model,
        "max_output_tokens": max(limit, _LEAST_TOKENS) if options.is_openai else limit,
        "store": False,
    }
    if options.system_prompt:
        fields["instructions"] = options.system_prompt
    if "temperature" not in seen.refused:
        fields["temperature"] = settings.temperature
    return {**fields, **further_settings(settings), **options.extra_body}


def responses_input(prompt: Prompt, look: Look) -> list[dict[str, Any]]:
    """The messages of a prompt."""
    return [_message(message, look) for message in prompt.messages]


def _message(message: Message, look: Look) -> dict[str, Any]:
    said = message.role == "assistant"
    pieces = [piece for part in message.parts for piece in _pieces(part, look, said)]
    return {"role": message.role, "content": pieces}


def _pieces(part: Part, look: Look, said: bool) -> list[dict[str, Any]]:
    match part:
        case Text(text=text):
            return [{"type": "output_text" if said else "input_text", "text": text}]
        case Image():
            return [{"type": "input_image", "image_url": pack_image(part, look).url}]
        case Audio():
            sound = pack_sound(part)
            return [{"type": "input_audio", "input_audio": {"data": sound.text, "format": "wav"}}]
        case Video() if look.whole_videos:
            return [{"type": "input_video", "video_url": pack_video_file(part).url}]
        case Video():
            return [{"type": "input_image", "image_url": frame.url} for frame in pack_video(part, look)]


def read_responses(value: Any) -> Reading:
    """The answer in a reply.

    Raises:
        BadReply: There is none.
    """
    if error := value.get("error"):
        raise BadReply(f"the server says it failed: {error.get('message', error)}")
    texts, thoughts, refusals, messages = [], [], [], 0
    for item in value["output"]:
        if item["type"] == "reasoning":
            pieces = [*(item.get("summary") or ()), *(item.get("content") or ())]
            thoughts += [str(piece.get("text", "")) for piece in pieces]
        elif item["type"] == "message":
            messages += 1
            for piece in item["content"]:
                if piece["type"] == "refusal":
                    refusals.append(str(piece.get("refusal", "")))
                else:
                    texts.append(str(piece["text"]))
    finish = _finish(value)
    if not messages and finish not in ("length", "refused"):
        raise BadReply("the reply has no message")
    text = "".join(texts) or "".join(refusals)
    said = Said(text, "refused" if refusals else finish, "\n".join(thoughts) or None)
    return Reading((said,), read_usage(value.get("usage")), str(value.get("model") or ""), "")


def _finish(value: Mapping[str, Any]) -> Finish:
    if value.get("status") == "incomplete":
        details = value.get("incomplete_details") or {}
        return FINISHES.get(str(details.get("reason", "")), "length")
    return FINISHES.get(str(value.get("status", "")), "")
