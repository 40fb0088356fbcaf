"""Parse the harmony format of gpt-oss: messages with channels and recipients.

    <|channel|>analysis<|message|>The user asks …<|end|><|start|>assistant<|channel|>final<|message|>42<|return|>

A response begins after `<|start|>assistant`. It can end anywhere. The package `openai-harmony` is the reference; recorded results of it are
in the tests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["CHANNEL_TOKEN", "MESSAGE_TOKEN", "HarmonyMessage", "parse_harmony"]

CHANNEL_TOKEN = "<|channel|>"
MESSAGE_TOKEN = "<|message|>"
_START = "<|start|>"
_ENDS = ("<|end|>", "<|return|>", "<|call|>")
_CHANNEL = re.compile(r"[^\s<]+")
_RECIPIENT = re.compile(r"(?:^|\s)to=([^\s<]+)")


@dataclass(frozen=True, slots=True)
class HarmonyMessage:
    """One message of a response."""

    channel: str
    """`analysis`, `commentary` or `final`; empty if the message has none."""

    content: str
    recipient: str = ""
    """The function that is called, such as `functions.get_weather`."""

    is_finished: bool = True


def parse_harmony(text: str) -> list[HarmonyMessage]:
    """Return the messages of a response in order.

    >>> [(one.channel, one.content) for one in parse_harmony("<|channel|>final<|message|>42<|return|>")]
    [('final', '42')]

    Text without any token of the format is one message without a channel.
    """
    messages: list[HarmonyMessage] = []
    while text:
        header, found, rest = text.partition(MESSAGE_TOKEN)
        if not found:
            if messages or CHANNEL_TOKEN in header or _START in header:
                break  # the response ends inside a header
            return [HarmonyMessage("", _read_content(text)[0])]
        content, is_finished, text = _read_content(rest)
        channel, recipient = _read_header(header)
        messages.append(HarmonyMessage(channel, content, recipient, is_finished))
    return messages


def _read_content(text: str) -> tuple[str, bool, str]:
    """Return the content of a message, whether it ends, and the text from the next header on."""
    ends = [(index, end) for end in _ENDS if (index := text.find(end)) >= 0]
    if not ends:
        return text, False, ""
    index, end = min(ends)
    return text[:index], True, text[index + len(end) :]


def _read_header(header: str) -> tuple[str, str]:
    """Return the channel and the recipient of a header: `assistant to=functions.f<|channel|>commentary <|constrain|>json`."""
    role, _, after = header.partition(CHANNEL_TOKEN)
    named = _CHANNEL.match(after)
    channel = named[0] if named and not named[0].startswith("to=") else ""
    recipient = _RECIPIENT.search(role) or _RECIPIENT.search(after)
    return channel, recipient[1] if recipient else ""
