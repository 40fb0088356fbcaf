"""Video processors without torchvision: convert frames to the input tensors of a model, with Pillow and NumPy.

The video processors of transformers need torchvision; without it, even the processor of a model that reads videos does
not load. These use the same settings (`video_preprocessor_config.json`) and do the same work: resize, rescale and
normalize each frame, then stack the frames or cut them into patches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "VIDEO_PROCESSORS",
    "PatchedVideoProcessor",
    "SquareVideoProcessor",
    "StackedVideoProcessor",
    "VideoProcessor",
    "fit_pixels",
]

Array = NDArray[Any]
_BICUBIC = 3
_CLIP_MEAN, _CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_HALF = (0.5, 0.5, 0.5)


class VideoProcessor:
    """Base class: a video processor configured by its settings file, called by the processor of the model."""

    defaults: Mapping[str, Any] = {}
    model_input_names: Sequence[str] = ("pixel_values_videos",)
    valid_kwargs = None
    num_frames: int | None = None
    fps: float | None = None

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = {**_COMMON, **self.defaults, **{k: v for k, v in settings.items() if v is not None}}

    def __call__(self, videos: Sequence[Any], **others: Any) -> dict[str, Any]:
        """`videos`: one list of PIL frames per video, or one list of videos per prompt."""
        flat = [clip for group in videos for clip in group] if _is_nested(videos) else list(videos)
        tensors = self.make_tensors(flat)
        if others.get("return_metadata"):
            metadata = others.get("video_metadata") or []
            nested = bool(metadata) and isinstance(metadata[0], (list, tuple))
            tensors["video_metadata"] = (
                [one for group in metadata for one in group] if nested else list(metadata)
            )
        return tensors

    def make_tensors(self, videos: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Return the input tensors of some videos."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the settings; transformers calls this to print the processor."""
        return dict(self.settings)

    def to_pixels(self, frames: Sequence[Any], width: int, height: int) -> Array:
        """Return frames as one array (frames, channels, height, width), resized, rescaled and normalized."""
        settings = self.settings
        tensors = np.empty((len(frames), 3, height, width), np.float32)
        for index, frame in enumerate(frames):
            image = frame.convert("RGB")
            if settings["do_resize"] and image.size != (width, height):
                image = image.resize((width, height), resample=settings["resample"])
            tensors[index] = np.asarray(image, np.float32).transpose(2, 0, 1)
        if settings["do_rescale"]:
            tensors *= settings["rescale_factor"]
        if settings["do_normalize"]:
            mean, std = (
                np.asarray(settings[key], np.float32)[:, None, None] for key in ("image_mean", "image_std")
            )
            tensors = (tensors - mean) / std
        return tensors


_COMMON: Mapping[str, Any] = {
    "do_resize": True,
    "do_rescale": True,
    "do_normalize": True,
    "rescale_factor": 1 / 255,
    "resample": _BICUBIC,
    "image_mean": _CLIP_MEAN,
    "image_std": _CLIP_STD,
}


class StackedVideoProcessor(VideoProcessor):
    """Stacks frames of one size: LLaVA-OneVision, InternVL."""

    defaults: Mapping[str, Any] = {"size": {"height": 384, "width": 384}}

    def make_tensors(self, videos: Sequence[Sequence[Any]]) -> dict[str, Any]:
        import torch

        height, width = _read_size(self.settings["size"])
        tensors = [torch.from_numpy(self.to_pixels(frames, width, height)) for frames in videos]
        alike = len({len(one) for one in tensors}) == 1
        return {"pixel_values_videos": torch.stack(tensors) if alike else tensors}


class SquareVideoProcessor(VideoProcessor):
    """Processes frames like images without splitting: SmolVLM. Scales the longer side first, then makes them square."""

    defaults: Mapping[str, Any] = {
        "size": {"longest_edge": 4 * 364},
        "max_image_size": {"longest_edge": 364},
        "resample": 1,
        "image_mean": _HALF,
        "image_std": _HALF,
    }
    model_input_names = ("pixel_values", "pixel_attention_mask")

    def make_tensors(self, videos: Sequence[Sequence[Any]]) -> dict[str, Any]:
        import torch

        side = int(self.settings["max_image_size"]["longest_edge"])
        max_pixels = max(len(frames) for frames in videos)
        pixels = torch.zeros(len(videos), max_pixels, 3, side, side)
        mask = torch.zeros(len(videos), max_pixels, side, side, dtype=torch.int64)
        for index, frames in enumerate(videos):
            scaled = [self._scale_frame(frame.convert("RGB")) for frame in frames]
            pixels[index, : len(frames)] = torch.from_numpy(self.to_pixels(scaled, side, side))
            mask[index, : len(frames)] = 1
        return {"pixel_values": pixels, "pixel_attention_mask": mask}

    def _scale_frame(self, frame: Any) -> Any:
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


class PatchedVideoProcessor(VideoProcessor):
    """Cuts frames into patches in space and time, each video at its own size: Qwen2-VL and later.

    The settings of Qwen2-VL limit the pixels of a frame, those of Qwen3-VL (`limits_whole_video`) the pixels of the video.
    The user's `min_pixels` and `max_pixels` always apply to a frame, `total_pixels` to the video.
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
    limits_whole_video = False

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self.patch_size = int(self.settings["patch_size"])
        self.merge_size = int(self.settings["merge_size"])
        self.temporal_patch_size = int(self.settings["temporal_patch_size"])

    def make_tensors(self, videos: Sequence[Sequence[Any]]) -> dict[str, Any]:
        import torch

        patches, grids = zip(*(self._cut_patches(frames) for frames in videos), strict=True)
        return {
            "pixel_values_videos": torch.from_numpy(np.concatenate(patches)),
            "video_grid_thw": torch.tensor(grids),
        }

    def find_pixel_limits(self, frames: int) -> tuple[int, int]:
        """Return the minimum and maximum pixels of a frame, or of the video if `limits_whole_video`."""
        settings = self.settings
        share = frames if self.limits_whole_video else 1
        min_pixels = (
            settings["min_pixels"] * share
            if settings.get("min_pixels")
            else settings["size"]["shortest_edge"]
        )
        max_pixels = (
            settings["max_pixels"] * share if settings.get("max_pixels") else settings["size"]["longest_edge"]
        )
        if settings.get("total_pixels"):
            max_pixels = min(max_pixels, max(settings["total_pixels"] * share // frames, min_pixels))
        return int(min_pixels), int(max_pixels)

    def _cut_patches(self, frames: Sequence[Any]) -> tuple[Array, tuple[int, int, int]]:
        width, height = frames[0].size
        depth = self.temporal_patch_size
        count = -(-len(frames) // depth) * depth
        factor = self.patch_size * self.merge_size
        min_pixels, max_pixels = self.find_pixel_limits(count)
        height, width = fit_pixels(
            height,
            width,
            factor=factor,
            min_pixels=min_pixels,
            max_pixels=max_pixels,
            frames=count if self.limits_whole_video else 1,
        )
        pixels = self.to_pixels(frames, width, height)
        if count > len(frames):  # repeat the last frame to fill the temporal patch
            pixels = np.concatenate([pixels, np.repeat(pixels[-1:], count - len(frames), axis=0)])
        grid = (count // depth, height // self.patch_size, width // self.patch_size)
        side, merge = self.patch_size, self.merge_size
        cut = pixels.reshape(
            grid[0], depth, 3, grid[1] // merge, merge, side, grid[2] // merge, merge, side
        ).transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)
        return np.ascontiguousarray(cut.reshape(math.prod(grid), -1)), grid


class WholeVideoPatchProcessor(PatchedVideoProcessor):
    """Qwen3-VL."""

    defaults: Mapping[str, Any] = {
        **PatchedVideoProcessor.defaults,
        "size": {"shortest_edge": 128 * 32 * 32, "longest_edge": 32 * 32 * 768},
        "patch_size": 16,
        "image_mean": _HALF,
        "image_std": _HALF,
    }
    limits_whole_video = True


VIDEO_PROCESSORS: Mapping[str, Callable[[Mapping[str, Any]], VideoProcessor]] = {
    "InternVLVideoProcessor": StackedVideoProcessor,
    "LlavaNextVideoVideoProcessor": StackedVideoProcessor,
    "LlavaOnevisionVideoProcessor": StackedVideoProcessor,
    "Qwen2VLVideoProcessor": PatchedVideoProcessor,
    "Qwen3VLVideoProcessor": WholeVideoPatchProcessor,
    "SmolVLMVideoProcessor": SquareVideoProcessor,
}
"""Replacements of the video processors of transformers, by class name."""


def fit_pixels(
    height: int, width: int, *, factor: int, min_pixels: int, max_pixels: int, frames: int = 1
) -> tuple[int, int]:
    """Return the height and width, multiples of `factor`, closest to the original with all frames within the limits.

    >>> fit_pixels(100, 200, factor=28, min_pixels=3136, max_pixels=12_845_056)
    (112, 196)
    """
    if frames > 1 and min(height, width) < factor:
        scale = factor / min(height, width)
        height, width = int(height * scale), int(width * scale)
    if max(height, width) > 200 * min(height, width):
        raise ValueError(f"the aspect ratio of the image ({width} x {height}) is too extreme for this model")
    new_height, new_width = round(height / factor) * factor, round(width / factor) * factor
    total = frames * new_height * new_width
    if total > max_pixels:
        shrink = math.sqrt(frames * height * width / max_pixels)
        return tuple(max(factor, math.floor(side / shrink / factor) * factor) for side in (height, width))  # type: ignore[return-value]
    if total < min_pixels:
        grow = math.sqrt(min_pixels / (frames * height * width))
        return tuple(math.ceil(side * grow / factor) * factor for side in (height, width))  # type: ignore[return-value]
    return new_height, new_width


def _is_nested(videos: Sequence[Any]) -> bool:
    """Return whether videos are grouped by prompt."""
    return (
        bool(videos)
        and isinstance(videos[0], (list, tuple))
        and bool(videos[0])
        and isinstance(videos[0][0], (list, tuple))
    )


def _read_size(size: Mapping[str, int]) -> tuple[int, int]:
    if "height" in size:
        return int(size["height"]), int(size["width"])
    return int(size["shortest_edge"]), int(size["shortest_edge"])
