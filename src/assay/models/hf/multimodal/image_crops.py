"""The image processor of Phi-4 without torchvision, which the version in transformers requires.

An image is scaled and padded with white to a grid of crops, then cut. An overview at the size of one crop comes first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["CroppedImageProcessor"]

_BILINEAR = 2
_OVERVIEW_TOKENS = 256 + 1 + 16
"""Tokens of the overview, with the separators after its lines and after the whole."""


class CroppedImageProcessor:
    """Replaces the image processor in the processor of the model."""

    model_input_names = ("image_pixel_values", "image_sizes", "image_attention_mask")
    valid_kwargs = None

    def __init__(self, settings: Mapping[str, Any]) -> None:
        size = settings.get("size") or {"height": 448}
        self.side = int(size["height"])
        self.patch_size = int(settings.get("patch_size") or 14)
        self.max_crops = int(settings.get("dynamic_hd") or 36)
        self._mean = np.asarray(settings.get("image_mean") or [0.5] * 3, np.float32)[:, None, None]
        self._std = np.asarray(settings.get("image_std") or [0.5] * 3, np.float32)[:, None, None]

    def __call__(self, images: Sequence[Any], **others: Any) -> dict[str, Any]:
        """`images`: a list of images, or one list of images per prompt."""
        import torch

        nested = isinstance(images[0], (list, tuple))
        flat = [image for group in images for image in group] if nested else list(images)
        processed = [self._process_image(image) for image in flat]
        max_crops = max(len(pixels) for pixels, *_ in processed)
        side, grid = self.side, self.side // self.patch_size
        pixels = torch.zeros(len(processed), max_crops, 3, side, side)
        masks = torch.ones(len(processed), max_crops, grid, grid)
        for index, (crops, mask, *_) in enumerate(processed):
            pixels[index, : len(crops)] = crops
            masks[index, : len(mask)] = torch.from_numpy(mask)
        return {
            "image_pixel_values": pixels,
            "image_sizes": torch.tensor([size for *_, size, _ in processed]),
            "image_attention_mask": masks,
            "num_img_tokens": [tokens for *_, tokens in processed],
        }

    def fetch_images(self, images: Any) -> Any:
        """Return the images unchanged; they are already loaded."""
        return images

    def _process_image(self, image: Any) -> tuple[Any, Any, list[int], int]:
        import torch

        pixels, mask, (wide, high) = self._scale_image(image.convert("RGB"))
        side, grid = self.side, self.side // self.patch_size
        whole = torch.from_numpy(pixels)[None]
        overview = torch.nn.functional.interpolate(whole, (side, side), mode="bicubic", align_corners=False)
        crops = whole[0].reshape(3, high, side, wide, side).permute(1, 3, 0, 2, 4).reshape(-1, 3, side, side)
        cut = mask.reshape(high, grid, wide, grid).swapaxes(1, 2).reshape(-1, grid, grid)
        kept = cut[:, ::2, ::2]
        lines = kept.reshape(high, wide, *kept.shape[1:]).swapaxes(1, 2).reshape(high * kept.shape[1], -1)
        tokens = _OVERVIEW_TOKENS + int(lines.sum()) + int(lines[:, 0].sum())
        masks = np.concatenate([np.ones((1, grid, grid), np.float32), cut])
        return torch.cat([overview, crops]), masks, [high * side, wide * side], tokens

    def _scale_image(self, image: Any) -> tuple[Any, Any, tuple[int, int]]:
        """Return the normalized pixels of all crops, a mask of the patches inside the image, and the grid size."""
        from PIL import Image as PILImage

        wide, high = self._choose_grid(*image.size)
        width, height = wide * self.side, high * self.side
        scale = min(width / image.width, height / image.height)
        fits_width = width / image.width < height / image.height
        inner = (
            width if fits_width else int(image.width * scale),
            int(image.height * scale) if fits_width else height,
        )
        if min(inner) < 10:
            raise ValueError(
                f"the aspect ratio of the image ({image.width} x {image.height}) is too extreme for this model"
            )
        canvas = PILImage.new("RGB", (width, height), (255, 255, 255))
        canvas.paste(image.resize(inner, resample=_BILINEAR), (0, 0))
        pixels = (np.asarray(canvas, np.float32).transpose(2, 0, 1) / 255 - self._mean) / self._std
        grid = self.side // self.patch_size
        mask = np.ones((grid * high, grid * wide), np.float32)
        if empty := (width - inner[0]) // self.patch_size:
            mask[:, -empty:] = 0
        if empty := (height - inner[1]) // self.patch_size:
            mask[-empty:] = 0
        return pixels, mask, (wide, high)

    def _choose_grid(self, width: int, height: int) -> tuple[int, int]:
        """Return the number of crops across and down. A large image gets the allowed grid with the closest shape."""
        wide, high = math.ceil(width / self.side), math.ceil(height / self.side)
        if wide * high <= self.max_crops:
            return wide, high
        max_crops = self.max_crops
        shapes = sorted(
            {(i, j) for i in range(1, max_crops + 1) for j in range(1, max_crops + 1) if i * j <= max_crops},
            key=lambda shape: shape[0] * shape[1],
        )
        best, nearest = (1, 1), math.inf
        for shape in shapes:
            distance = abs(width / height - shape[0] / shape[1])
            large = width * height > 0.5 * self.side**2 * shape[0] * shape[1]
            if distance < nearest or (distance == nearest and large):
                best, nearest = shape, distance
        return best
