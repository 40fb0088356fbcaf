"""Chat completions: a prompt as messages, settings as fields, a reply as an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.messages import Audio, Image, Message, Part, Prompt, Text, Video
from assay.core.requests import Generate, Settings
from assay.core.responses import Finish, Response, Tokens, Usage
from assay.models.remote.bulk import Bulk
from assay.models.remote.faults import BadReply
from assay.models.remote.media import Look, pack_image, pack_sound, pack_video, pack_video_file
from assay.models.remote.options import Options
from assay.models.remote.seen import Seen
from assay.models.tokens import cut_at_stops, split_thinking, tokens_of_bytes

__all__ = [
    "FINISHES",
    "PATH",
    "Reading",
    "Said",
    "chat_fields",
    "chat_messages",
    "chat_payload",
    "further_settings",
    "read_chat",
    "read_tokens",
    "read_usage",
    "response_of",
    "seed_of",
    "served_name",
    "stops_of",
]

PATH = "/chat/completions"
MOST_STOPS = 4
"""What OpenAI takes; the rest is applied here."""

FINISHES: Mapping[str, Finish] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_calls": "stop",
    "function_call": "stop",
    "completed": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "content_filter": "refused",
    "refusal": "refused",
    "safety": "refused",
}
_OWN = frozenset(
    """
    until stop do_sample temperature seed max_gen_toks max_new_tokens max_tokens max_completion_tokens num_beams
    use_cache image_aspect_ratio early_stopping length_penalty return_dict_in_generate output_scores n
    """.split()
)
"""Settings that are sent in another form, or mean nothing to a server."""


@dataclass(frozen=True, slots=True)
class Said:
    """One answer in a reply."""

    text: str
    finish: Finish
    reasoning: str | None = None
    tokens: Tokens | None = None


def chat_fields(
    settings: Settings, options: Options, seen: Seen, repeat: int = 0, n: int = 1, *, tokens: bool = False
) -> dict[str, Any]:
    """Everything of a call but its messages; `tokens`: the answer is to bring the log-probability of each."""
    limit = options.max_gen_toks if settings.max_tokens is None else settings.max_tokens
    fields: dict[str, Any] = {
        "model": options.model,
        ("max_completion_tokens" if seen.long_limit_name else "max_tokens"): limit,
    }
    if "temperature" not in seen.refused:
        fields["temperature"] = settings.temperature
    stops = stops_of(settings, options)
    if stops and "stop" not in seen.refused:
        fields["stop"] = list(stops[:MOST_STOPS])
    seed = seed_of(settings, options, repeat)
    if seed is not None and "seed" not in seen.refused:
        fields["seed"] = seed
    if n > 1:
        fields["n"] = n
    if tokens:
        fields["logprobs"] = True
    return {**fields, **further_settings(settings), **options.extra_body}


def chat_payload(request: Generate, options: Options, seen: Seen, look: Look) -> dict[str, Any]:
    """A whole call for one request; media in it are `Bulk`."""
    fields = chat_fields(request.settings, options, seen, request.repeat)
    return {**fields, "messages": chat_messages(request.prompt, options, look)}


def stops_of(settings: Settings, options: Options) -> tuple[str, ...]:
    """Every stop string there is; an empty one would stop before the first word."""
    stops = dict.fromkeys([*settings.stop, options.eos_string])
    return tuple(stop for stop in stops if stop)


def seed_of(settings: Settings, options: Options, repeat: int) -> int | None:
    """The seed of a repeat: repeats of one prompt are different draws."""
    seed = options.seed if settings.seed is None else settings.seed
    return None if seed is None else seed + repeat


def further_settings(settings: Settings) -> dict[str, Any]:
    """What the task says beyond length, temperature, stops and seed, as it says it."""
    return {key: value for key, value in settings.values.items() if key not in _OWN and value is not None}


# --- prompts -------------------------------------------------------------------------------------------


def chat_messages(prompt: Prompt, options: Options, look: Look) -> list[dict[str, Any]]:
    """The messages of a prompt; one without a chat template is a single message of the user's."""
    messages = [{"role": message.role, "content": _content(message, look)} for message in prompt.messages]
    if options.system_prompt and not (messages and messages[0]["role"] == "system"):
        messages.insert(0, {"role": "system", "content": options.system_prompt})
    return messages


def _content(message: Message, look: Look) -> str | list[dict[str, Any]]:
    if len(message.parts) == 1 and isinstance(message.parts[0], Text):
        return message.parts[0].text
    if all(isinstance(part, Text) for part in message.parts):
        return message.text
    return [piece for part in message.parts for piece in _pieces(part, look)]


def _pieces(part: Part, look: Look) -> list[dict[str, Any]]:
    match part:
        case Text(text=text):
            return [{"type": "text", "text": text}] if text else []
        case Image():
            return [_image_piece(pack_image(part, look).url)]
        case Audio():
            sound = pack_sound(part)
            return [{"type": "input_audio", "input_audio": {"data": sound.text, "format": "wav"}}]
        case Video() if look.whole_videos:
            return [{"type": "video_url", "video_url": {"url": pack_video_file(part).url}}]
        case Video():
            return [_image_piece(frame.url) for frame in pack_video(part, look)]


def _image_piece(url: Bulk) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


# --- replies -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reading:
    """A whole reply."""

    said: tuple[Said, ...]
    usage: Usage | None
    model: str
    system_fingerprint: str

    @property
    def served(self) -> str:
        """Who the server says it is."""
        return served_name(self.model, self.system_fingerprint)


def served_name(model: Any, fingerprint: Any) -> str:
    """A server's name for itself, on one line.

    >>> served_name("gpt-4o-mini-2024-07-18", "fp_0ba0d124f1")
    'gpt-4o-mini-2024-07-18 (fp_0ba0d124f1)'
    """
    name = str(model or "")
    return f"{name} ({fingerprint})".lstrip() if fingerprint else name


def read_chat(value: Any) -> Reading:
    """The answers in a reply, in the order of their numbers.

    Raises:
        BadReply: There is none.
    """
    choices = value["choices"]
    if not choices:
        raise BadReply("the reply has no choices")
    if len(choices) > 1:
        choices = sorted(choices, key=lambda choice: choice.get("index", 0))
    return Reading(
        tuple([_said(choice) for choice in choices]),
        read_usage(value.get("usage")),
        str(value.get("model") or ""),
        str(value.get("system_fingerprint") or ""),
    )


def _said(choice: Mapping[str, Any]) -> Said:
    message = choice["message"]
    finish = FINISHES.get(str(choice.get("finish_reason") or ""), "")
    reasoning = message.get("reasoning_content") or message.get("reasoning") or None
    text = message.get("content")
    if isinstance(text, Sequence) and not isinstance(text, str):
        text = "".join([str(piece.get("text", "")) for piece in text])
    if refusal := message.get("refusal"):
        return Said(text or str(refusal), "refused", reasoning)
    if text is None:
        if not (reasoning or finish in ("length", "refused") or message.get("tool_calls")):
            raise BadReply("the reply has a choice without a text")
        text = ""
    if not isinstance(text, str):
        raise BadReply(f"the answer is a {type(text).__name__}, not a text")
    told = choice.get("logprobs")
    thought = reasoning if isinstance(reasoning, str) else None
    return Said(text, finish, thought, read_tokens(told) if told else None)


def read_tokens(value: Any) -> Tokens | None:
    """The tokens of an answer, as chat completions or text completions tell them; None where they do not."""
    if not isinstance(value, Mapping):
        return None
    listed = value.get("content")
    if listed:
        contents = [
            bytes(one["bytes"]) if one.get("bytes") else str(one.get("token", "")).encode("utf-8", "replace")
            for one in listed
        ]
        return tokens_of_bytes(contents, [float(one["logprob"]) for one in listed])
    names, numbers = value.get("tokens"), value.get("token_logprobs")
    if not names or not numbers or len(names) != len(numbers) or None in numbers:
        return None
    return Tokens(tuple(map(str, names)), tuple(map(float, numbers)))


def read_usage(value: Any) -> Usage | None:
    """Tokens read and written, whatever the API calls them."""
    if not isinstance(value, Mapping):
        return None
    read = value.get("prompt_tokens", value.get("input_tokens"))
    written = value.get("completion_tokens", value.get("output_tokens"))
    details = value.get("prompt_tokens_details") or value.get("input_tokens_details") or {}
    cost = value.get("cost")
    return Usage(
        int(read or 0),
        int(written or 0),
        cached_tokens=int(details.get("cached_tokens") or 0),
        cost_usd=float(cost) if isinstance(cost, (int, float)) and cost else None,
    )


def response_of(
    request: Generate,
    said: Said,
    usage: Usage | None,
    options: Options,
    seconds: float,
    stops: Sequence[str] | None = None,
    served: str = "",
) -> Response:
    """The answer to a request: cut at its stops whether the server did it or not, thinking apart."""
    text, reasoning, finish = said.text, said.reasoning, said.finish
    if options.think_end_token:
        thought, text = split_thinking(text, options.think_end_token)
        reasoning = reasoning or thought
    if stops is None:
        stops = stops_of(request.settings, options)
    cut = cut_at_stops(text, stops) if stops else text
    if len(cut) < len(text) and finish != "refused":
        finish = "stop"
    return Response(
        request_id=request.id,
        value=cut,
        finish=finish,
        usage=usage,
        seconds=seconds,
        reasoning=reasoning,
        served=served,
        tokens=said.tokens,
    )
