from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from assay.models.embedded.decoder import Decoder, KVCache
from assay.models.embedded.weights import Array, BlockedMatrix, DecoderWeights, ModelFolder

LENGTHS = [1, 2, 31, 32, 33, 200, 256, 257, 600, 1000]


@pytest.fixture(scope="module")
def weights(folder: Path) -> DecoderWeights:
    return ModelFolder(folder).read()[0]


@pytest.fixture(scope="module")
def decoder(weights: DecoderWeights) -> Decoder:
    return Decoder(weights)


def embed_tokens(decoder: Decoder, count: int) -> Array:
    return decoder.embed([1, *map(int, np.random.default_rng(count).integers(8, 100, count - 1))])


def read_cached(cache: KVCache) -> bytes:
    return cache.keys[:, :, : cache.length].tobytes() + cache.values[:, :, : cache.length].tobytes()


Wide = NDArray[np.float64]


def compute_in_double_precision(weights: DecoderWeights, vectors: Array) -> Wide:
    """Compute the hidden vectors with whole matrices."""
    hidden: Wide = vectors.astype(np.float64)
    rotation = weights.rotation[: len(vectors)].astype(np.complex128)
    later = np.triu(np.full((len(vectors), len(vectors)), -np.inf), k=1)

    def multiply(rows: Wide, blocks: BlockedMatrix) -> Wide:
        product: Wide = rows @ blocks.transpose(0, 2, 1, 3).reshape(rows.shape[1], -1).astype(np.float64)
        return product

    def normalize(rows: Wide) -> Wide:
        result: Wide = rows / np.sqrt((rows**2).mean(axis=-1, keepdims=True) + weights.epsilon)
        return result

    for layer in weights.layers:
        fused = multiply(normalize(hidden), layer.query_key_value).reshape(len(hidden), 3, weights.heads, -1)
        query, key, value = fused.transpose(1, 2, 0, 3)
        query, key = (
            (np.ascontiguousarray(part).view(np.complex128) * rotation).view(np.float64)
            for part in (query, key)
        )
        scores = query @ key.transpose(0, 2, 1) + later
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (shares / shares.sum(axis=-1, keepdims=True)) @ value
        hidden = hidden + multiply(mixed.transpose(1, 0, 2).reshape(len(hidden), -1), layer.output)
        gate, up = np.split(multiply(normalize(hidden), layer.gate_up), 2, axis=1)
        hidden = hidden + multiply((1 + np.tanh(gate)) * gate * up, layer.down)
    return hidden


@pytest.mark.parametrize("length", LENGTHS)
def test_tiles_compute_what_whole_matrices_compute(
    decoder: Decoder, weights: DecoderWeights, length: int
) -> None:
    vectors = embed_tokens(decoder, length)
    expected = compute_in_double_precision(weights, vectors)
    assert decoder.read(vectors, decoder.make_cache()) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_prompt_fills_the_cache_like_its_tokens(decoder: Decoder, length: int) -> None:
    vectors = embed_tokens(decoder, length)
    prompt, tokens = decoder.make_cache(), decoder.make_cache()
    last = decoder.read_prompt(vectors, prompt)
    every = decoder.read(vectors, tokens)
    assert prompt.length == tokens.length == length
    assert last.shape == (1, vectors.shape[1])
    assert read_cached(prompt) == read_cached(tokens)
    assert last == pytest.approx(every[-1:], abs=1e-3)


@pytest.mark.parametrize("size", [32, 64, 256])
def test_portions_of_whole_tiles_give_the_same_bits(decoder: Decoder, size: int) -> None:
    vectors = embed_tokens(decoder, 700)
    whole, portions = decoder.make_cache(), decoder.make_cache()
    expected = decoder.read(vectors, whole)
    found = [decoder.read(vectors[start : start + size], portions) for start in range(0, 700, size)]
    assert np.concatenate(found).tobytes() == expected.tobytes()
    assert read_cached(portions) == read_cached(whole)


def test_reading_leaves_the_embeddings_alone(decoder: Decoder) -> None:
    vectors = embed_tokens(decoder, 40)
    before = vectors.tobytes()
    decoder.read(vectors, decoder.make_cache())
    decoder.read_prompt(vectors, decoder.make_cache())
    assert vectors.tobytes() == before


def test_no_product_is_large_enough_for_several_threads(weights: DecoderWeights) -> None:
    """OpenBLAS uses one thread up to 2^18 multiplications, and for a single row below 9,216."""
    layers = [getattr(layer, field.name) for layer in weights.layers for field in fields(layer)]
    for _, _, inputs, outputs in (blocks.shape for blocks in [*layers, weights.head]):
        assert 32 * inputs * outputs <= 2**18
        assert inputs * outputs < 9216
