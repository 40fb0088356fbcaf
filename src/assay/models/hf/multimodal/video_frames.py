"""Video processors that need no torchvision: frames to the tensors a model expects, with Pillow and NumPy.

transformers has them for torchvision alone, and without it does not even load the processor of a model that can look at
videos. These do the same work from the same settings (`video_preprocessor_config.json`): resize each frame, scale, normalise,
then either stack the frames or cut them into patches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FRAME_MAKERS", "FrameMaker", "PatchedFrames", "SquareFrames", "StackedFrames", "fit_pixels"]

Array = NDArray[Any]
_BICUBIC = 3
_CLIP_MEAN, _CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_HALF = (0.5, 0.5, 0.5)


class FrameMaker:
    """One kind of video processor, set up from its configuration file. Called by the processor of the model."""

    defaults: Mapping[str, Any] = {}
    model_input_names: Sequence[str] = ("pixel_values_videos",)
    valid_kwargs = None
    num_frames: int | None = None
    fps: float | None = None

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = {**_COMMON, **self.defaults, **{k: v for k, v in settings.items() if v is not None}}

    def __call__(self, videos: Sequence[Any], **others: Any) -> dict[str, Any]:
        """`videos`: lists of PIL frames, one list per video or one list of videos per prompt."""
        flat = [clip for group in videos for clip in group] if _nested(videos) else list(videos)
        made = self.make(flat)
        if others.get("return_metadata"):
            metadata = others.get("video_metadata") or []
            nested = bool(metadata) and isinstance(metadata[0], (list, tuple))
            made["video_metadata"] = (
                [one for group in metadata for one in group] if nested else list(metadata)
            )
        return made

    def make(self, videos: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """The tensors of some videos."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The settings, for whoever prints the processor."""
        return dict(self.settings)

    def pixels(self, frames: Sequence[Any], width: int, height: int) -> Array:
        """Frames as one array (frames, channels, height, width), resized, scaled and normalised."""
        settings = self.settings
        made = np.empty((len(frames), 3, height, width), np.float32)
        for at, frame in enumerate(frames):
            picture = frame.convert("RGB")
            if settings["do_resize"] and picture.size != (width, height):
                picture = picture.resize((width, height), resample=settings["resample"])
            made[at] = np.asarray(picture, np.float32).transpose(2, 0, 1)
        if settings["do_rescale"]:
            made *= settings["rescale_factor"]
        if settings["do_normalize"]:
            mean, std = (
                np.asarray(settings[key], np.float32)[:, None, None] for key in ("image_mean", "image_std")
            )
            made = (made - mean) / std
        return made


_COMMON: Mapping[str, Any] = {
    "do_resize": True,
    "do_rescale": True,
    "do_normalize": True,
    "rescale_factor": 1 / 255,
    "resample": _BICUBIC,
    "image_mean": _CLIP_MEAN,
    "image_std": _CLIP_STD,
}


class StackedFrames(FrameMaker):
    """Frames of one size, one after the other: LLaVA-OneVision, InternVL."""

    defaults: Mapping[str, Any] = {"size": {"height": 384, "width": 384}}

    def make(self, videos: Sequence[Sequence[Any]]) -> dict[str, Any]:
        import torch

        height, width = _square(self.settings["size"])
        made = [torch.from_numpy(self.pixels(frames, width, height)) for frames in videos]
        alike = len({len(one) for one in made}) == 1
        return {"pixel_values_videos": torch.stack(made) if alike else made}


class SquareFrames(FrameMaker):
    """Frames as the pictures of a model that never splits them: SmolVLM. Scaled to a longest side first, then square."""

    defaults: Mapping[str, Any] = {
        "size": {"longest_edge": 4 * 364},
        "max_image_size": {"longest_edge": 364},
        "resample": 1,
        "image_mean": _HALF,
        "image_std": _HALF,
    }
    model_input_names = ("pixel_values", "pixel_attention_mask")

    def make(self, videos: Sequence[Sequence[Any]]) -> dict[str, Any]:
        import torch

        side = int(self.settings["max_image_size"]["longest_edge"])
        most = max(len(frames) for frames in videos)
        pixels = torch.zeros(len(videos), most, 3, side, side)
        mask = torch.zeros(len(videos), most, side, side, dtype=torch.int64)
        for at, frames in enumerate(videos):
            scaled = [self._scaled(frame.convert("RGB")) for frame in frames]
            pixels[at, : len(frames)] = torch.from_numpy(self.pixels(scaled, side, side))
            mask[at, : len(frames)] = 1
        return {"pixel_values": pixels, "pixel_attention_mask": mask}

    def _scaled(self, frame: Any) -> Any:
        longest = self.settings["size"].get("longest_edge")
        if not longest:
            return frame
        width, height = frame.size
        if width >= height:
            width, height = longest, int(longest * height / width)
            height = max(height + height % 2, 1)
        else:
            width, height = int(longest * width / height), longest
            width = max(width + width % 2, 1)
        return frame.resize((width, height), resample=self.settings["resample"])


class PatchedFrames(FrameMaker):
    """Frames cut into patches in space and time, each video at its own size: Qwen2-VL and what follows it.

    The file of Qwen2-VL bounds the pixels of a frame, that of Qwen3-VL (`whole`) those of the whole video. `min_pixels` and
    `max_pixels` are the user's, and always those of a frame; `total_pixels` bounds the video.
    """

    defaults: Mapping[str, Any] = {
        "size": {"shortest_edge": 128 * 28 * 28, "longest_edge": 28 * 28 * 768},
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "min_pixels": None,
        "max_pixels": None,
        "total_pixels": None,
    }
    model_input_names = ("pixel_values_videos", "video_grid_thw")
    whole = False

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self.patch_size = int(self.settings["patch_size"])
        self.merge_size = int(self.settings["merge_size"])
        self.temporal_patch_size = int(self.settings["temporal_patch_size"])

    def make(self, videos: Sequence[Sequence[Any]]) -> dict[str, Any]:
        import torch

        patches, grids = zip(*(self._cut(frames) for frames in videos), strict=True)
        return {
            "pixel_values_videos": torch.from_numpy(np.concatenate(patches)),
            "video_grid_thw": torch.tensor(grids),
        }

    def bounds(self, frames: int) -> tuple[int, int]:
        """The pixels of a frame, or (`whole`) of all of them: at least and at most."""
        said = self.settings
        share = frames if self.whole else 1
        least = said["min_pixels"] * share if said.get("min_pixels") else said["size"]["shortest_edge"]
        most = said["max_pixels"] * share if said.get("max_pixels") else said["size"]["longest_edge"]
        if said.get("total_pixels"):
            most = min(most, max(said["total_pixels"] * share // frames, least))
        return int(least), int(most)

    def _cut(self, frames: Sequence[Any]) -> tuple[Array, tuple[int, int, int]]:
        width, height = frames[0].size
        depth = self.temporal_patch_size
        count = -(-len(frames) // depth) * depth
        factor = self.patch_size * self.merge_size
        least, most = self.bounds(count)
        height, width = fit_pixels(
            height, width, factor=factor, least=least, most=most, frames=count if self.whole else 1
        )
        pixels = self.pixels(frames, width, height)
        if count > len(frames):  # an odd frame is shown twice
            pixels = np.concatenate([pixels, np.repeat(pixels[-1:], count - len(frames), axis=0)])
        grid = (count // depth, height // self.patch_size, width // self.patch_size)
        side, merge = self.patch_size, self.merge_size
        cut = pixels.reshape(
            grid[0], depth, 3, grid[1] // merge, merge, side, grid[2] // merge, merge, side
        ).transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)
        return np.ascontiguousarray(cut.reshape(math.prod(grid), -1)), grid


class WholePatchedFrames(PatchedFrames):
    """Qwen3-VL."""

    defaults: Mapping[str, Any] = {
        **PatchedFrames.defaults,
        "size": {"shortest_edge": 128 * 32 * 32, "longest_edge": 32 * 32 * 768},
        "patch_size": 16,
        "image_mean": _HALF,
        "image_std": _HALF,
    }
    whole = True


FRAME_MAKERS: Mapping[str, Callable[[Mapping[str, Any]], FrameMaker]] = {
    "InternVLVideoProcessor": StackedFrames,
    "LlavaNextVideoVideoProcessor": StackedFrames,
    "LlavaOnevisionVideoProcessor": StackedFrames,
    "Qwen2VLVideoProcessor": PatchedFrames,
    "Qwen3VLVideoProcessor": WholePatchedFrames,
    "SmolVLMVideoProcessor": SquareFrames,
}
"""The video processors of transformers that have a stand-in here, by the name in the configuration."""


def fit_pixels(
    height: int, width: int, *, factor: int, least: int, most: int, frames: int = 1
) -> tuple[int, int]:
    """The height and width, multiples of `factor`, nearest to a picture's own, with the pixels of all frames in bounds.

    >>> fit_pixels(100, 200, factor=28, least=3136, most=12_845_056)
    (112, 196)
    """
    if frames > 1 and min(height, width) < factor:
        scale = factor / min(height, width)
        height, width = int(height * scale), int(width * scale)
    if max(height, width) > 200 * min(height, width):
        raise ValueError(f"a picture of {width} x {height} is too narrow for this model")
    new_height, new_width = round(height / factor) * factor, round(width / factor) * factor
    total = frames * new_height * new_width
    if total > most:
        shrink = math.sqrt(frames * height * width / most)
        return tuple(max(factor, math.floor(side / shrink / factor) * factor) for side in (height, width))  # type: ignore[return-value]
    if total < least:
        grow = math.sqrt(least / (frames * height * width))
        return tuple(math.ceil(side * grow / factor) * factor for side in (height, width))  # type: ignore[return-value]
    return new_height, new_width


def _nested(videos: Sequence[Any]) -> bool:
    """Whether videos are grouped by prompt."""
    return (
        bool(videos)
        and isinstance(videos[0], (list, tuple))
        and bool(videos[0])
        and isinstance(videos[0][0], (list, tuple))
    )


def _square(size: Mapping[str, int]) -> tuple[int, int]:
    if "height" in size:
        return int(size["height"]), int(size["width"])
    return int(size["shortest_edge"]), int(size["shortest_edge"])
