"""Phi-4's picture processor without torchvision, the only kind transformers has of it.

A picture is scaled to whole crops, its rest filled with white, and cut; the whole picture at the size of one crop comes first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["CroppedPictures"]

_BILINEAR = 2
_OVERVIEW_TOKENS = 256 + 1 + 16
"""Tokens of the whole picture at the size of one crop, with the marks behind its lines and itself."""


class CroppedPictures:
    """Called by the processor of the model in the place of its picture processor."""

    model_input_names = ("image_pixel_values", "image_sizes", "image_attention_mask")
    valid_kwargs = None

    def __init__(self, settings: Mapping[str, Any]) -> None:
        size = settings.get("size") or {"height": 448}
        self.side = int(size["height"])
        self.patch_size = int(settings.get("patch_size") or 14)
        self.most_crops = int(settings.get("dynamic_hd") or 36)
        self._mean = np.asarray(settings.get("image_mean") or [0.5] * 3, np.float32)[:, None, None]
        self._std = np.asarray(settings.get("image_std") or [0.5] * 3, np.float32)[:, None, None]

    def __call__(self, images: Sequence[Any], **others: Any) -> dict[str, Any]:
        """`images`: pictures, or lists of the pictures of each prompt."""
        import torch

        nested = isinstance(images[0], (list, tuple))
        flat = [picture for group in images for picture in group] if nested else list(images)
        made = [self._one(picture) for picture in flat]
        most = max(len(pixels) for pixels, *_ in made)
        side, grid = self.side, self.side // self.patch_size
        pixels = torch.zeros(len(made), most, 3, side, side)
        masks = torch.ones(len(made), most, grid, grid)
        for at, (crops, mask, *_) in enumerate(made):
            pixels[at, : len(crops)] = crops
            masks[at, : len(mask)] = torch.from_numpy(mask)
        return {
            "image_pixel_values": pixels,
            "image_sizes": torch.tensor([size for *_, size, _ in made]),
            "image_attention_mask": masks,
            "num_img_tokens": [tokens for *_, tokens in made],
        }

    def fetch_images(self, images: Any) -> Any:
        """Pictures are pictures already."""
        return images

    def _one(self, picture: Any) -> tuple[Any, Any, list[int], int]:
        import torch

        pixels, mask, (wide, high) = self._scaled(picture.convert("RGB"))
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

    def _scaled(self, picture: Any) -> tuple[Any, Any, tuple[int, int]]:
        """Normalised pixels of whole crops, which patches of them are picture, and how many crops wide and high."""
        from PIL import Image as Pictures

        wide, high = self._crops(*picture.size)
        width, height = wide * self.side, high * self.side
        scale = min(width / picture.width, height / picture.height)
        fits_width = width / picture.width < height / picture.height
        inner = (
            width if fits_width else int(picture.width * scale),
            int(picture.height * scale) if fits_width else height,
        )
        if min(inner) < 10:
            raise ValueError(f"a picture of {picture.width} x {picture.height} is too narrow for this model")
        sheet = Pictures.new("RGB", (width, height), (255, 255, 255))
        sheet.paste(picture.resize(inner, resample=_BILINEAR), (0, 0))
        pixels = (np.asarray(sheet, np.float32).transpose(2, 0, 1) / 255 - self._mean) / self._std
        grid = self.side // self.patch_size
        mask = np.ones((grid * high, grid * wide), np.float32)
        if empty := (width - inner[0]) // self.patch_size:
            mask[:, -empty:] = 0
        if empty := (height - inner[1]) // self.patch_size:
            mask[-empty:] = 0
        return pixels, mask, (wide, high)

    def _crops(self, width: int, height: int) -> tuple[int, int]:
        """How many crops side by side and on top of each other; of a large picture, the nearest shape that is allowed."""
        wide, high = math.ceil(width / self.side), math.ceil(height / self.side)
        if wide * high <= self.most_crops:
            return wide, high
        most = self.most_crops
        shapes = sorted(
            {(i, j) for i in range(1, most + 1) for j in range(1, most + 1) if i * j <= most},
            key=lambda shape: shape[0] * shape[1],
        )
        best, nearest = (1, 1), math.inf
        for shape in shapes:
            distance = abs(width / height - shape[0] / shape[1])
            large = width * height > 0.5 * self.side**2 * shape[0] * shape[1]
            if distance < nearest or (distance == nearest and large):
                best, nearest = shape, distance
        return best
