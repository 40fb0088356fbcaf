"""Encode images as vectors: resize, CLIP vision tower, projector. One image at a time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from assay.models.embedded.weights import Array, VisionLayer, VisionWeights

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["VisionTower"]


class VisionTower:
    """Encodes an image as vectors that the decoder reads in place of `<image>`."""

    def __init__(self, weights: VisionWeights) -> None:
        self._weights = weights

    @property
    def patches(self) -> int:
        """Number of vectors, and so tokens, per image."""
        return (self._weights.side // self._weights.patch_side) ** 2

    def encode_image(self, image: Image.Image) -> Array:
        """Return one vector per patch."""
        weights = self._weights
        patches = _join_blocks(self._cut_patches(self._to_pixels(image)) @ weights.patch)
        hidden = np.concatenate([weights.class_embedding[None], patches]) + weights.positions
        hidden = _normalize(hidden, weights.epsilon) * weights.norm_weight + weights.norm_bias
        for layer in weights.layers:
            hidden = self._run_layer(hidden, layer)
        inner = hidden[1:] @ weights.first + weights.first_bias
        return _sum_blocks(_gelu(inner) @ weights.second) + weights.second_bias

    def _to_pixels(self, image: Image.Image) -> Array:
        """Return the pixels (height x width x 3) scaled to -1..1, like the image processor of the model folder."""
        from PIL import Image  # not needed for texts

        side = self._weights.side
        resized = image.convert("RGB").resize((side, side), Image.Resampling.BICUBIC)
        pixels = np.asarray(resized, dtype=np.float32) / np.float32(255)
        return (pixels - np.float32(0.5)) / np.float32(0.5)

    def _cut_patches(self, pixels: Array) -> Array:
        """Return one row per patch, channels first within a row, like the convolution weights."""
        size = self._weights.patch_side
        across = self._weights.side // size
        blocks = pixels.reshape(across, size, across, size, 3).transpose(0, 2, 4, 1, 3)
        return np.ascontiguousarray(blocks).reshape(across * across, -1)

    def _run_layer(self, hidden: Array, layer: VisionLayer) -> Array:
        fused = _normalize(hidden, self._weights.epsilon) @ layer.query_key_value + layer.query_key_value_bias
        query, key, value = fused.reshape(3, self._weights.heads, *fused.shape[1:])
        scores = query @ key.transpose(0, 2, 1)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= np.add.reduce(scores, axis=-1, keepdims=True)
        hidden = hidden + _sum_blocks((scores @ value) @ layer.output) + layer.output_bias
        inner = _normalize(hidden, self._weights.epsilon) @ layer.up + layer.up_bias
        inner = inner / (np.float32(1) + np.exp(np.float32(-1.702) * inner))
        return hidden + _sum_blocks(inner @ layer.down) + layer.down_bias


def _join_blocks(blocks: Array) -> Array:
    """Reshape (blocks, rows, channels) to (rows, all channels)."""
    return blocks.transpose(1, 0, 2).reshape(blocks.shape[1], -1)


def _sum_blocks(blocks: Array) -> Array:
    """Return the sum over the blocks."""
    total: Array = np.add.reduce(blocks, axis=0)
    return total


def _normalize(hidden: Array, epsilon: np.float32) -> Array:
    centred = hidden - hidden.mean(axis=-1, keepdims=True)
    total: Array = np.add.reduce(centred * centred, axis=-1, keepdims=True)
    result: Array = centred / np.sqrt(total / np.float32(hidden.shape[-1]) + epsilon)
    return result


def _gelu(values: Array) -> Array:
    """Compute the exact GELU; NumPy has no error function."""
    scaled = values.astype(np.float64) * math.sqrt(0.5)
    spread = np.array([math.erf(value) for value in scaled.ravel()], dtype=np.float32).reshape(values.shape)
    return np.float32(0.5) * values * (np.float32(1) + spread)
