"""The model `speech`: transcribes English speech with Moonshine.

A small real model from PyPI that needs neither torch nor a GPU nor a download: the wheel of `moonshine-voice` contains the
`tiny-en` weights. It follows no instructions and ignores the text of a prompt; the answer is the transcript.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from assay.core.errors import InvalidOption
from assay.core.ports import Traits
from assay.core.records.messages import Audio, Media
from assay.core.records.requests import Request
from assay.core.records.responses import Outcome
from assay.media import waveform
from assay.models.file_digests import hash_files
from assay.models.media_to_text import transcribe_media
from assay.models.packages import require_package

__all__ = ["SpeechModel"]

_PACKAGE, _DISTRIBUTION = "moonshine_voice", "moonshine-voice"
_RATE_HZ = 16_000
_KINDS = ("TINY", "BASE")


class SpeechModel:
    """Transcribes English speech with Moonshine.

    >>> SpeechModel().name
    'moonshine-tiny-en'
    """

    def __init__(self, *, weights: str | Path = "", kind: str = "tiny") -> None:
        if kind.upper() not in _KINDS:
            raise InvalidOption(f"`kind` must be `tiny` or `base`, not `{kind}`", where="--model_args")
        self._folder = Path(weights) if weights else None
        self._kind = kind.upper()
        self._transcriber: Any = None

    @property
    def name(self) -> str:
        return f"moonshine-{self._folder.name}" if self._folder else "moonshine-tiny-en"

    @property
    def traits(self) -> Traits:
        """Audio only, one window at a time; a prompt must contain audio."""
        return Traits(
            abilities=frozenset({"generate", "chat", "audio"}),
            needs=frozenset({"audio"}),
            window=8,
            in_flight=1,
        )

    async def identify(self) -> Mapping[str, str]:
        """The version of the package and a hash of the weights."""
        own = require_package(_DISTRIBUTION, "", "the model `speech`")
        sha256 = await asyncio.to_thread(hash_files, *self._weights())
        return {"name": self.name, _DISTRIBUTION: own, "kind": self._kind.lower(), "weights_sha256": sha256}

    async def open(self) -> None:
        """Load the weights, which takes less than a second."""
        require_package(_DISTRIBUTION, "", "the model `speech`")
        self._weights()
        if self._transcriber is None:
            self._transcriber = await asyncio.to_thread(self._load)

    def _load(self) -> Any:
        kinds = import_module(f"{_PACKAGE}.moonshine_api").ModelArch
        transcriber = import_module(f"{_PACKAGE}.transcriber").Transcriber
        return transcriber(str(self._path()), kinds[self._kind])

    def prepare(self, part: Media) -> None:
        """Decode audio ahead of time."""
        if isinstance(part, Audio):
            waveform(part, rate_hz=_RATE_HZ)

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Transcribe the audio of each request."""
        async for outcome in transcribe_media(window, self._read, Audio):
            yield outcome

    async def close(self) -> None:
        """Release the memory of the library."""
        transcriber, self._transcriber = self._transcriber, None
        if transcriber is not None:
            await asyncio.to_thread(transcriber.close)

    def _read(self, media: tuple[Media, ...]) -> str:
        lines: list[str] = []
        for part in media:
            samples = waveform(cast(Audio, part), rate_hz=_RATE_HZ)
            transcript = self._transcriber.transcribe_without_streaming(samples.tolist(), _RATE_HZ)
            lines += [str(line.text).strip() for line in transcript.lines]
        return " ".join(lines)

    def _path(self) -> Path:
        if self._folder is not None:
            return self._folder
        found = find_spec(_PACKAGE)
        return Path(str(found.origin)).parent / "assets" / "tiny-en" if found else Path(_PACKAGE)

    def _weights(self) -> list[Path]:
        folder = self._path()
        files = sorted(path for path in folder.glob("*") if path.is_file()) if folder.is_dir() else []
        if not files:
            raise InvalidOption(
                f"no weights in `{folder}`",
                where="--model_args weights",
                hint="remove `weights` to use those of the package",
            )
        return files
