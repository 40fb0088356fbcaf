"""Compare NumPy and ONNX Runtime for the embedded model: tokens per second of prefill and generation.

    pip install onnx onnxruntime
    python benchmarks/embedded_engine.py [MODEL_FOLDER]

Both use the same weights, one sequence at a time and a KV cache. ONNX Runtime gets fused matrices, which suit it best, and the
same number of threads as NumPy. Rounds alternate, and each number is the best round in processor time.

OPENBLAS_CORETYPE forces the matrix kernels of another processor on NumPy and not on ONNX Runtime, so it is ignored here;
`--keep_core_type` measures with it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measurements import Measurement, Report, add_json_option

from assay.models.embedded.adapter import SHIPPED_WEIGHTS
from assay.models.embedded.decoder import Decoder
from assay.models.embedded.weights import Array, BlockedMatrix, DecoderWeights, ModelFolder

PREFILL_TOKENS, GENERATED_TOKENS, ROUNDS = 200, 100, 50


class OnnxDecoder:
    """The decoder as one ONNX graph from embeddings and cached keys and values to logits and new keys and values."""

    def __init__(self, weights: DecoderWeights, threads: int, *, last_only: bool) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        model = GraphBuilder(weights, last_only=last_only).build().SerializeToString()
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._weights = weights
        size = weights.embedding.shape[1] // weights.heads
        self._empty = np.zeros((weights.heads, 0, size), dtype=np.float32)
        self._names = [
            f"{kind}{number}" for number in range(len(weights.layers)) for kind in ("key", "value")
        ]
        self.reset()

    def reset(self) -> None:
        self._past = [self._empty] * len(self._names)

    def read(self, ids: list[int]) -> Array:
        start, count = self._past[0].shape[1], len(ids)
        turn = self._weights.rotation[start : start + count]
        later = np.arange(start + count)[None, :] > np.arange(start, start + count)[:, None]
        feeds = {
            "vectors": self._weights.embedding[ids],
            "cosine": np.ascontiguousarray(turn.real),
            "sine": np.ascontiguousarray(turn.imag),
            "mask": np.where(later, np.float32(-1e9), np.float32(0)),
            **dict(zip(self._names, self._past, strict=True)),
        }
        logits, *self._past = self._session.run(None, feeds)
        return np.asarray(logits)


class GraphBuilder:
    """Builds the ONNX graph of the decoder, node by node. With `last_only`, the logits are those of the last token."""

    def __init__(self, weights: DecoderWeights, *, last_only: bool) -> None:
        self._weights = weights
        self._last_only = last_only
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def build(self) -> Any:
        from onnx import TensorProto, helper

        weights = self._weights
        width, heads = weights.embedding.shape[1], weights.heads
        hidden, outputs = "vectors", []
        for number, layer in enumerate(weights.layers):
            fused = self.add_node(
                "MatMul",
                self.add_rms_norm(hidden),
                self.add_constant(join_blocks(layer.query_key_value)),
            )
            shaped = self.add_node("Reshape", fused, self.add_constant(np.array([0, 3 * heads, -1])))
            by_head = self.add_node("Transpose", shaped, perm=[1, 0, 2])
            query, key, value = self.add_split(by_head, 3, axis=0)
            key = self.add_node(
                "Concat", f"key{number}", self.add_rotation(key), axis=1, output=f"new_key{number}"
            )
            value = self.add_node("Concat", f"value{number}", value, axis=1, output=f"new_value{number}")
            outputs += [key, value]
            query, mask = self.add_rotation(query), "mask"
            if self._last_only and layer is weights.layers[-1]:
                hidden, query, mask = (
                    self.add_last(hidden, 0), self.add_last(query, 1), self.add_last(mask, 0)
                )  # fmt: skip
            scores = self.add_node("MatMul", query, self.add_node("Transpose", key, perm=[0, 2, 1]))
            mixed = self.add_node(
                "MatMul", self.add_node("Softmax", self.add_node("Add", scores, mask), axis=-1), value
            )
            flat = self.add_node("Transpose", mixed, perm=[1, 0, 2])
            flat = self.add_node("Reshape", flat, self.add_constant(np.array([0, width])))
            hidden = self.add_node(
                "Add",
                hidden,
                self.add_node("MatMul", flat, self.add_constant(join_blocks(layer.output))),
            )
            gate_up = join_blocks(layer.gate_up)
            gate_up[:, : gate_up.shape[1] // 2] *= 2  # Assay halves the gate
            both = self.add_node("MatMul", self.add_rms_norm(hidden), self.add_constant(gate_up))
            gate, up = self.add_split(both, 2, axis=1)
            active = self.add_node("Mul", self.add_node("Mul", gate, self.add_node("Sigmoid", gate)), up)
            hidden = self.add_node(
                "Add",
                hidden,
                self.add_node("MatMul", active, self.add_constant(join_blocks(layer.down))),
            )
        logits = self.add_node(
            "MatMul",
            self.add_rms_norm(hidden),
            self.add_constant(join_blocks(weights.head)),
            output="logits",
        )
        tensor, half = helper.make_tensor_value_info, width // heads // 2
        inputs = [
            tensor("vectors", TensorProto.FLOAT, ["new", width]),
            tensor("cosine", TensorProto.FLOAT, ["new", half]),
            tensor("sine", TensorProto.FLOAT, ["new", half]),
            tensor("mask", TensorProto.FLOAT, ["new", "all"]),
        ]
        for number in range(len(weights.layers)):
            for kind in ("key", "value"):
                inputs.append(tensor(f"{kind}{number}", TensorProto.FLOAT, [heads, "past", 2 * half]))
        found = [tensor(name, TensorProto.FLOAT, None) for name in (logits, *outputs)]
        graph = helper.make_graph(self._nodes, "decoder", inputs, found, self._constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)

    def add_node(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        from onnx import helper

        name = output or f"n{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def add_split(self, name: str, parts: int, axis: int) -> list[str]:
        from onnx import helper

        names = [f"n{len(self._nodes)}_{part}" for part in range(parts)]
        self._nodes.append(helper.make_node("Split", [name], names, axis=axis, num_outputs=parts))
        return names

    def add_last(self, name: str, axis: int) -> str:
        """Add a slice with only the last entry of an axis."""
        numbers = (self.add_constant(np.array([number])) for number in (-1, np.iinfo(np.int64).max, axis))
        return self.add_node("Slice", name, *numbers)

    def add_constant(self, value: Any) -> str:
        from onnx import numpy_helper

        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add_rms_norm(self, name: str) -> str:
        mean = self.add_node(
            "ReduceMean", self.add_node("Mul", name, name), self.add_constant(np.array([-1])), keepdims=1
        )
        return self.add_node(
            "Div",
            name,
            self.add_node("Sqrt", self.add_node("Add", mean, self.add_constant(self._weights.epsilon))),
        )

    def add_rotation(self, name: str) -> str:
        """Add a rotation of neighbouring channels: (a, b) -> (a cos - b sin, b cos + a sin)."""
        half = self._weights.embedding.shape[1] // self._weights.heads // 2
        heads = self._weights.heads
        pairs = self.add_node("Reshape", name, self.add_constant(np.array([heads, -1, half, 2])))
        even, odd = (
            self.add_node("Squeeze", part, self.add_constant(np.array([3])))
            for part in self.add_split(pairs, 2, axis=3)
        )
        first = self.add_node("Sub", self.add_node("Mul", even, "cosine"), self.add_node("Mul", odd, "sine"))
        second = self.add_node("Add", self.add_node("Mul", odd, "cosine"), self.add_node("Mul", even, "sine"))
        last = self.add_constant(np.array([3]))
        both = self.add_node(
            "Concat",
            self.add_node("Unsqueeze", first, last),
            self.add_node("Unsqueeze", second, last),
            axis=3,
        )
        return self.add_node("Reshape", both, self.add_constant(np.array([heads, -1, 2 * half])))


def join_blocks(matrix: BlockedMatrix) -> Array:
    """Convert a matrix in blocks to one (in, out) matrix."""
    return matrix.transpose(0, 2, 1, 3).reshape(matrix.shape[0] * matrix.shape[2], -1)


def ignore_core_type() -> None:
    """Restart without OPENBLAS_CORETYPE, which OpenBLAS reads when NumPy is imported."""
    if "OPENBLAS_CORETYPE" in os.environ:
        rest = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
        os.execve(sys.executable, [sys.executable, *sys.argv], rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One of the two implementations."""

    reset: Callable[[], None]
    read: Callable[[list[int]], Array]
    """Return the logits after every token."""

    read_prompt: Callable[[list[int]], Array]
    """Return the logits after the last token."""


def build_numpy_engine(weights: DecoderWeights) -> Engine:
    decoder = Decoder(weights)
    cache = decoder.make_cache()

    def reset() -> None:
        cache.length = 0

    return Engine(
        reset=reset,
        read=lambda ids: decoder.logits(decoder.read(decoder.embed(ids), cache)),
        read_prompt=lambda ids: decoder.logits(decoder.read_prompt(decoder.embed(ids), cache)),
    )


def build_onnx_engine(weights: DecoderWeights, threads: int) -> Engine:
    every, last = (OnnxDecoder(weights, threads, last_only=last_only) for last_only in (False, True))

    def reset() -> None:
        every.reset()
        last.reset()

    return Engine(reset=reset, read=every.read, read_prompt=last.read)


PROMPT = [1, *(20 + number % 60 for number in range(PREFILL_TOKENS - 1))]


def measure_round(engine: Engine) -> tuple[float, float, float]:
    """Return the tokens per second of a prompt, of a prompt with the logits of every token, and of generation."""
    engine.reset()
    times = [time.process_time()]
    engine.read_prompt(PROMPT)
    times.append(time.process_time())
    engine.reset()
    engine.read(PROMPT)
    times.append(time.process_time())
    for _ in range(GENERATED_TOKENS):
        engine.read([50])
    times.append(time.process_time())
    prompt, every, generation = np.diff(times)
    return PREFILL_TOKENS / prompt, PREFILL_TOKENS / every, GENERATED_TOKENS / generation


def main() -> None:
    """Compare the logits, then the speeds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=SHIPPED_WEIGHTS)
    parser.add_argument("--threads", type=int, default=1, help="threads of ONNX Runtime")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--keep_core_type", action="store_true", help="do not ignore OPENBLAS_CORETYPE")
    add_json_option(parser)
    arguments = parser.parse_args()
    if not arguments.keep_core_type:
        ignore_core_type()
    report = Report(arguments.json)
    weights, _ = ModelFolder(arguments.folder).read()
    engines = {
        "NumPy": build_numpy_engine(weights),
        "ONNX Runtime": build_onnx_engine(weights, arguments.threads),
    }
    logits = [engine.read(PROMPT) for engine in engines.values()]
    difference = np.abs(logits[0] - logits[1]).max()
    print(f"largest difference between logits: {difference:.1e}")
    rounds = [[measure_round(engine) for engine in engines.values()] for _ in range(arguments.rounds)]
    ours, theirs = np.array(rounds).max(axis=0)
    titles = (
        f"prefill of {PREFILL_TOKENS} tokens",
        f"prefill of {PREFILL_TOKENS} tokens, logits of every token",
        f"generation of {GENERATED_TOKENS} tokens",
    )
    for index, title in enumerate(titles):
        print(
            f"{title:<45} NumPy {ours[index]:>7,.0f} tokens/s   ONNX Runtime {theirs[index]:>7,.0f} tokens/s   "
            f"{ours[index] / theirs[index]:.2f}x"
        )
        report.add(
            Measurement(
                what=f"embedded model, {title}", ours=float(ours[index]), peer=float(theirs[index]),
                against="ONNX Runtime", unit="tokens/s", more_is_better=True,
                details={"largest difference of a logit": f"{difference:.1e}"},
            )
        )  # fmt: skip


if __name__ == "__main__":
    main()
