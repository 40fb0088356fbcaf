"""Compare NumPy and ONNX Runtime for the embedded model: tokens per second of prefill and generation.

    pip install onnx onnxruntime
    python benchmarks/embedded_engine.py [MODEL_FOLDER]

Both use the same weights, one sequence at a time and a KV cache. ONNX Runtime gets fused matrices, which suit it best, and the
same number of threads as NumPy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measurements import Measurement, Report, add_json_option

from assay.models.embedded.adapter import SHIPPED_WEIGHTS
from assay.models.embedded.decoder import Decoder
from assay.models.embedded.weights import Array, DecoderWeights, ModelFolder

PREFILL_TOKENS, GENERATED_TOKENS, ROUNDS = 200, 100, 5


class OnnxDecoder:
    """The decoder as one ONNX graph from embeddings and cached keys and values to logits and new keys and values."""

    def __init__(self, weights: DecoderWeights, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        model = GraphBuilder(weights).build().SerializeToString()
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
    """Builds the ONNX graph of the decoder, node by node."""

    def __init__(self, weights: DecoderWeights) -> None:
        self._weights = weights
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
                self.add_constant(concatenate_outputs(layer.query_key_value)),
            )
            shaped = self.add_node("Reshape", fused, self.add_constant(np.array([0, 3 * heads, -1])))
            by_head = self.add_node("Transpose", shaped, perm=[1, 0, 2])
            query, key, value = self.add_split(by_head, 3, axis=0)
            key = self.add_node(
                "Concat", f"key{number}", self.add_rotation(key), axis=1, output=f"new_key{number}"
            )
            value = self.add_node("Concat", f"value{number}", value, axis=1, output=f"new_value{number}")
            outputs += [key, value]
            scores = self.add_node(
                "MatMul", self.add_rotation(query), self.add_node("Transpose", key, perm=[0, 2, 1])
            )
            mixed = self.add_node(
                "MatMul", self.add_node("Softmax", self.add_node("Add", scores, "mask"), axis=-1), value
            )
            flat = self.add_node("Transpose", mixed, perm=[1, 0, 2])
            flat = self.add_node("Reshape", flat, self.add_constant(np.array([0, width])))
            hidden = self.add_node(
                "Add",
                hidden,
                self.add_node("MatMul", flat, self.add_constant(concatenate_inputs(layer.output))),
            )
            both = self.add_node(
                "MatMul", self.add_rms_norm(hidden), self.add_constant(concatenate_outputs(layer.gate_up))
            )
            gate, up = self.add_split(both, 2, axis=1)
            active = self.add_node("Mul", self.add_node("Mul", gate, self.add_node("Sigmoid", gate)), up)
            hidden = self.add_node(
                "Add",
                hidden,
                self.add_node("MatMul", active, self.add_constant(concatenate_inputs(layer.down))),
            )
        logits = self.add_node(
            "MatMul",
            self.add_rms_norm(hidden),
            self.add_constant(concatenate_outputs(weights.head)),
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


def concatenate_outputs(stack: Array) -> Array:
    """Convert (blocks, in, out) with split outputs to one (in, all out) matrix."""
    return np.concatenate(list(stack), axis=1)


def concatenate_inputs(stack: Array) -> Array:
    """Convert (blocks, in, out) with split inputs to one (all in, out) matrix."""
    return np.concatenate(list(stack), axis=0)


def measure_speed(
    reset: Callable[[], None], read: Callable[[list[int]], Array], rounds: int
) -> tuple[float, float]:
    """Return the tokens per second of prefill and of generation, each the best of several rounds."""
    prompt = [1, *(20 + number % 60 for number in range(PREFILL_TOKENS - 1))]
    best_prefill = best_generation = 0.0
    for _ in range(rounds):
        reset()
        started = time.perf_counter()
        read(prompt)
        middle = time.perf_counter()
        for _ in range(GENERATED_TOKENS):
            read([50])
        ended = time.perf_counter()
        best_prefill = max(best_prefill, PREFILL_TOKENS / (middle - started))
        best_generation = max(best_generation, GENERATED_TOKENS / (ended - middle))
    return best_prefill, best_generation


def main() -> None:
    """Compare the logits, then the speeds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=SHIPPED_WEIGHTS)
    parser.add_argument("--threads", type=int, default=1, help="threads of ONNX Runtime")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    add_json_option(parser)
    arguments = parser.parse_args()
    report = Report(arguments.json)
    weights, _ = ModelFolder(arguments.folder).read()
    decoder = Decoder(weights)
    cache = decoder.make_cache()

    def reset() -> None:
        cache.length = 0

    def read(ids: list[int]) -> Array:
        return decoder.logits(decoder.read(decoder.embed(ids), cache))

    onnx = OnnxDecoder(weights, arguments.threads)
    difference = np.abs(read([1, 30, 40, 50, 60]) - onnx.read([1, 30, 40, 50, 60])).max()
    print(f"largest difference between logits: {difference:.1e}")
    speeds = {
        "NumPy": measure_speed(reset, read, arguments.rounds),
        "ONNX Runtime": measure_speed(onnx.reset, onnx.read, arguments.rounds),
    }
    for name, found in speeds.items():
        print(f"{name:<13} prefill {found[0]:>7,.0f} tokens/s   generation {found[1]:>6,.0f} tokens/s")
    for index, what in enumerate(("prefill of 200 tokens", "generation of 100 tokens")):
        report.add(
            Measurement(
                what=f"embedded model, {what}", ours=speeds["NumPy"][index], peer=speeds["ONNX Runtime"][index],
                against="ONNX Runtime", unit="tokens/s", more_is_better=True,
                details={"largest difference of a logit": f"{difference:.1e}"},
            )
        )  # fmt: skip


if __name__ == "__main__":
    main()
