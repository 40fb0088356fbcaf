"""Load a model folder as NumPy arrays, rearranged for speed.

Constant factors are folded into the matrices once: norm weights into the matrices after them, the attention scale into the
queries. Query and key channels are reordered so that rotary pairs are adjacent and one complex product rotates them.

Matrices are stored as stacks of small blocks. NumPy multiplies a stack block by block, and blocks of this size stay below the
size from which OpenBLAS uses several threads: 2^18 multiplications, or 9,216 for a single row. This keeps results reproducible:
with several threads, the last bits of a product can depend on their number.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import DatasetError

__all__ = [
    "Array",
    "BlockedMatrix",
    "DecoderLayer",
    "DecoderWeights",
    "ModelFolder",
    "VisionLayer",
    "VisionWeights",
]

Array = NDArray[np.float32]

BlockedMatrix = NDArray[np.float32]
"""A matrix in blocks: (input blocks, output blocks, input channels, output channels)."""

_MAX_INPUT_CHANNELS, _MAX_BLOCK_CHANNELS = 128, 64
"""Input and output channels of a block. A block times 32 tokens is just below the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderLayer:
    """One Llama layer, norms and scales folded in."""

    query_key_value: BlockedMatrix
    output: BlockedMatrix
    gate_up: BlockedMatrix
    """The gate is halved: silu(x) is (1 + tanh(x / 2)) * x / 2."""

    down: BlockedMatrix


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderWeights:
    """The Llama decoder."""

    embedding: Array
    layers: tuple[DecoderLayer, ...]
    head: BlockedMatrix
    rotation: NDArray[np.complex64]
    """Unit complex numbers, one row per position, one column per channel pair."""

    heads: int
    epsilon: np.float32
    context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionLayer:
    """One CLIP layer, norm weights and scale folded in. Shapes are (blocks, in, out)."""

    query_key_value: Array
    query_key_value_bias: Array
    output: Array
    output_bias: Array
    up: Array
    up_bias: Array
    down: Array
    down_bias: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionWeights:
    """The CLIP tower and the projector into the decoder's space."""

    patch: Array
    class_embedding: Array
    positions: Array
    norm_weight: Array
    norm_bias: Array
    layers: tuple[VisionLayer, ...]
    first: Array
    first_bias: Array
    second: Array
    second_bias: Array
    heads: int
    epsilon: np.float32
    side: int
    patch_side: int


class ModelFolder:
    """A Llava checkpoint in the Hugging Face layout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self) -> tuple[DecoderWeights, VisionWeights]:
        """Load and rearrange the weights.

        Raises:
            DatasetError: The folder contains another kind of model.
        """
        from safetensors.numpy import load_file

        config: dict[str, Any] = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        text, vision = config.get("text_config", {}), config.get("vision_config", {})
        if (config.get("model_type"), text.get("model_type"), vision.get("model_type")) != (
            "llava",
            "llama",
            "clip_vision_model",
        ):
            raise DatasetError(
                "not a Llava model with a Llama decoder and a CLIP tower",
                where=str(self.folder / "config.json"),
            )
        tensors = {
            _normalize_name(name): value
            for name, value in load_file(self.folder / "model.safetensors").items()
        }
        return _read_decoder(tensors, text), _read_vision(tensors, vision)


def _normalize_name(name: str) -> str:
    """Return the tensor name without the prefixes that differ between versions of transformers."""
    for old, new in (
        ("language_model.model.", "language_model."),
        ("vision_tower.vision_model.", "vision_tower."),
    ):
        name = name.removeprefix("model.").replace(old, new)
    return name


def _read_decoder(tensors: dict[str, Array], config: dict[str, Any]) -> DecoderWeights:
    heads, width = config["num_attention_heads"], config["hidden_size"]
    size = width // heads
    pairs = np.arange(width).reshape(heads, 2, size // 2).transpose(0, 2, 1).reshape(-1)
    layers = []
    for number in range(config["num_hidden_layers"]):
        prefix = f"language_model.layers.{number}."
        before, after = (tensors[prefix + f"{name}_layernorm.weight"] for name in ("input", "post_attention"))
        query = tensors[prefix + "self_attn.q_proj.weight"][pairs] * np.float32(size**-0.5)
        key = tensors[prefix + "self_attn.k_proj.weight"][pairs]
        value = tensors[prefix + "self_attn.v_proj.weight"]
        gate, up = (tensors[prefix + f"mlp.{name}_proj.weight"] for name in ("gate", "up"))
        layers.append(
            DecoderLayer(
                query_key_value=_split_matrix(np.concatenate([query, key, value]) * before),
                output=_split_matrix(tensors[prefix + "self_attn.o_proj.weight"]),
                gate_up=_split_matrix(np.concatenate([gate * np.float32(0.5), up]) * after),
                down=_split_matrix(tensors[prefix + "mlp.down_proj.weight"]),
            )
        )
    embedding = tensors["language_model.embed_tokens.weight"]
    head = tensors.get("lm_head.weight", tensors.get("language_model.lm_head.weight", embedding))
    return DecoderWeights(
        embedding=embedding,
        layers=tuple(layers),
        head=_split_matrix(head * tensors["language_model.norm.weight"]),
        rotation=_build_rotation(config, size),
        heads=heads,
        epsilon=np.float32(config["rms_norm_eps"]),
        context=config["max_position_embeddings"],
    )


def _build_rotation(config: dict[str, Any], size: int) -> NDArray[np.complex64]:
    theta = (config.get("rope_parameters") or config).get("rope_theta", 10000.0)
    frequencies = 1.0 / theta ** (np.arange(0, size, 2, dtype=np.float64) / size)
    angles = np.outer(np.arange(config["max_position_embeddings"], dtype=np.float64), frequencies)
    return np.exp(1j * angles).astype(np.complex64)


def _read_vision(tensors: dict[str, Array], config: dict[str, Any]) -> VisionWeights:
    heads, width = config["num_attention_heads"], config["hidden_size"]
    scale = np.float32((width // heads) ** -0.5)
    layers = []
    for number in range(config["num_hidden_layers"]):
        layer = _TensorGroup(tensors, f"vision_tower.encoder.layers.{number}.")
        parts = [layer.linear(f"self_attn.{name}_proj", "layer_norm1") for name in ("q", "k", "v")]
        (query, query_bias), (key, key_bias), (value, value_bias) = parts
        output, output_bias = layer.linear("self_attn.out_proj")
        up, up_bias = layer.linear("mlp.fc1", "layer_norm2")
        down, down_bias = layer.linear("mlp.fc2")
        layers.append(
            VisionLayer(
                query_key_value=_split_output(np.concatenate([query * scale, key, value]), 3 * heads),
                query_key_value_bias=np.concatenate([query_bias * scale, key_bias, value_bias]).reshape(
                    3 * heads, 1, -1
                ),
                output=_split_input(output, heads),
                output_bias=output_bias,
                up=_split_output(up, _count_blocks(len(up))),
                up_bias=up_bias.reshape(_count_blocks(len(up)), 1, -1),
                down=_split_input(down, _count_blocks(len(up))),
                down_bias=down_bias,
            )
        )
    tower = _TensorGroup(tensors, "vision_tower.")
    projector = _TensorGroup(tensors, "multi_modal_projector.")
    first, first_bias = projector.linear("linear_1")
    second, second_bias = projector.linear("linear_2")
    return VisionWeights(
        patch=_split_output(tower["embeddings.patch_embedding.weight"].reshape(width, -1), heads),
        class_embedding=tower["embeddings.class_embedding"],
        positions=tower["embeddings.position_embedding.weight"],
        norm_weight=tower["pre_layrnorm.weight"],
        norm_bias=tower["pre_layrnorm.bias"],
        layers=tuple(layers),
        first=_split_output(first, _count_blocks(len(first))),
        first_bias=first_bias.reshape(_count_blocks(len(first)), 1, -1),
        second=_split_input(second, _count_blocks(len(first))),
        second_bias=second_bias,
        heads=heads,
        epsilon=np.float32(config.get("layer_norm_eps", 1e-5)),
        side=config["image_size"],
        patch_side=config["patch_size"],
    )


@dataclass(frozen=True, slots=True)
class _TensorGroup:
    """The tensors with a common name prefix."""

    tensors: dict[str, Array]
    prefix: str

    def __getitem__(self, name: str) -> Array:
        return self.tensors[self.prefix + name]

    def linear(self, name: str, norm: str = "") -> tuple[Array, Array]:
        """Return the weight (out, in) and bias of a linear layer, with the norm before it folded in."""
        weight, bias = self[name + ".weight"], self[name + ".bias"]
        if norm:
            bias = bias + weight @ self[norm + ".bias"]
            weight = weight * self[norm + ".weight"]
        return weight, bias


def _count_blocks(channels: int, most: int = _MAX_BLOCK_CHANNELS) -> int:
    """Return the smallest number of equal blocks with a limited number of channels."""
    return next(count for count in range(-(-channels // most), channels + 1) if channels % count == 0)


def _split_matrix(weight: Array) -> BlockedMatrix:
    """(out, in) as saved -> blocks."""
    outputs = _count_blocks(weight.shape[0])
    inputs = _count_blocks(weight.shape[1], _MAX_INPUT_CHANNELS)
    blocks = weight.reshape(outputs, weight.shape[0] // outputs, inputs, -1).transpose(2, 0, 3, 1)
    return np.ascontiguousarray(blocks, dtype=np.float32)


def _split_output(weight: Array, blocks: int) -> Array:
    """(out, in) as saved -> (blocks, in, out / blocks): `rows @ stack` has the output channels in blocks."""
    return np.ascontiguousarray(
        weight.reshape(blocks, -1, weight.shape[1]).transpose(0, 2, 1), dtype=np.float32
    )


def _split_input(weight: Array, blocks: int) -> Array:
    """(out, in) as saved -> (blocks, in / blocks, out): takes rows in blocks; the products are to be added up."""
    return np.ascontiguousarray(weight.reshape(len(weight), blocks, -1).transpose(1, 2, 0), dtype=np.float32)
