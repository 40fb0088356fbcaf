"""Moonshine behind the `Model` port: sounds in, what is said in them out.

A small real model from PyPI that needs neither torch nor a GPU nor a download: the wheel of `moonshine-voice` carries
the `tiny-en` weights. It follows no instruction. The text of a prompt is not read; the answer is the transcript.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from assay.core.errors import BadOption
from assay.core.messages import Audio, Media
from assay.core.ports import Traits
from assay.core.requests import Request
from assay.core.responses import Outcome
from assay.media import waveform
from assay.models.reading import files_sha256, read_each, wanted

__all__ = ["SpeechModel"]

_PACKAGE, _DISTRIBUTION = "moonshine_voice", "moonshine-voice"
_RATE_HZ = 16_000
_KINDS = ("TINY", "BASE")


class SpeechModel:
    """English speech to text, by Moonshine.

    >>> SpeechModel().name
    'moonshine-tiny-en'
    """

    def __init__(self, *, weights: str | Path = "", kind: str = "tiny") -> None:
        if kind.upper() not in _KINDS:
            raise BadOption(f"`kind` is `tiny` or `base`, not `{kind}`", where="--model_args")
        self._folder = Path(weights) if weights else None
        self._kind = kind.upper()
        self._transcriber: Any = None

    @property
    def name(self) -> str:
        return f"moonshine-{self._folder.name}" if self._folder else "moonshine-tiny-en"

    @property
    def traits(self) -> Traits:
        """Sounds only, one at a time; without a sound there is nothing to write down."""
        return Traits(
            abilities=frozenset({"generate", "chat", "audio"}),
            needs=frozenset({"audio"}),
            window=8,
            in_flight=1,
        )

    async def identify(self) -> Mapping[str, str]:
        """The package's version and a hash of the weights."""
        own = wanted(_DISTRIBUTION, "speech", "the model `speech`")
        sha256 = await asyncio.to_thread(files_sha256, *self._weights())
        return {"name": self.name, _DISTRIBUTION: own, "kind": self._kind.lower(), "weights_sha256": sha256}

    async def open(self) -> None:
        """Load the weights: under a second."""
        wanted(_DISTRIBUTION, "speech", "the model `speech`")
        self._weights()
        if self._transcriber is None:
            self._transcriber = await asyncio.to_thread(self._load)

    def _load(self) -> Any:
        kinds = import_module(f"{_PACKAGE}.moonshine_api").ModelArch
        transcriber = import_module(f"{_PACKAGE}.transcriber").Transcriber
        return transcriber(str(self._path()), kinds[self._kind])

    def prepare(self, part: Media) -> None:
        """Decode a sound ahead of its turn."""
        if isinstance(part, Audio):
            waveform(part, rate_hz=_RATE_HZ)

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """What is said in the sounds of each request."""
        async for outcome in read_each(window, self._read, Audio):
            yield outcome

    async def close(self) -> None:
        """Let the library free its memory."""
        transcriber, self._transcriber = self._transcriber, None
        if transcriber is not None:
            await asyncio.to_thread(transcriber.close)

    def _read(self, media: tuple[Media, ...]) -> str:
        said: list[str] = []
        for part in media:
            samples = waveform(cast(Audio, part), rate_hz=_RATE_HZ)
            transcript = self._transcriber.transcribe_without_streaming(samples.tolist(), _RATE_HZ)
            said += [str(line.text).strip() for line in transcript.lines]
        return " ".join(said)

    def _path(self) -> Path:
        if self._folder is not None:
            return self._folder
        found = find_spec(_PACKAGE)
        return Path(str(found.origin)).parent / "assets" / "tiny-en" if found else Path(_PACKAGE)

    def _weights(self) -> list[Path]:
        folder = self._path()
        files = sorted(path for path in folder.glob("*") if path.is_file()) if folder.is_dir() else []
        if not files:
            raise BadOption(
                f"there are no weights in `{folder}`",
                where="--model_args weights",
                hint="leave `weights` out for the ones that come with the package",
            )
        return files
