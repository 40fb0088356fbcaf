"""NumPy or ONNX Runtime for the embedded model? Tokens per second of both, reading and writing.

    pip install onnx onnxruntime
    python benchmarks/embedded_engine.py [MODEL_FOLDER]

The same weights, one sequence at a time, both with a key-value memory. ONNX Runtime gets one fused matrix per
product, as it likes it, and the same number of threads as NumPy.
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

READ, WRITE, ROUNDS = 200, 100, 5


class OnnxDecoder:
    """The decoder as one ONNX graph: vectors and past keys and values in, logits and new ones out."""

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
        self.forget()

    def forget(self) -> None:
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
    """Writes the decoder down node by node."""

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
            fused = self.node("MatMul", self.normed(hidden), self.constant(joined(layer.query_key_value)))
            shaped = self.node("Reshape", fused, self.constant(np.array([0, 3 * heads, -1])))
            by_head = self.node("Transpose", shaped, perm=[1, 0, 2])
            query, key, value = self.split(by_head, 3, axis=0)
            key = self.node("Concat", f"key{number}", self.turned(key), axis=1, output=f"new_key{number}")
            value = self.node("Concat", f"value{number}", value, axis=1, output=f"new_value{number}")
            outputs += [key, value]
            scores = self.node("MatMul", self.turned(query), self.node("Transpose", key, perm=[0, 2, 1]))
            mixed = self.node(
                "MatMul", self.node("Softmax", self.node("Add", scores, "mask"), axis=-1), value
            )
            flat = self.node("Transpose", mixed, perm=[1, 0, 2])
            flat = self.node("Reshape", flat, self.constant(np.array([0, width])))
            hidden = self.node("Add", hidden, self.node("MatMul", flat, self.constant(stacked(layer.output))))
            both = self.node("MatMul", self.normed(hidden), self.constant(joined(layer.gate_up)))
            gate, up = self.split(both, 2, axis=1)
            active = self.node("Mul", self.node("Mul", gate, self.node("Sigmoid", gate)), up)
            hidden = self.node("Add", hidden, self.node("MatMul", active, self.constant(stacked(layer.down))))
        logits = self.node(
            "MatMul", self.normed(hidden), self.constant(joined(weights.head)), output="logits"
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

    def node(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        from onnx import helper

        name = output or f"n{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def split(self, name: str, parts: int, axis: int) -> list[str]:
        from onnx import helper

        names = [f"n{len(self._nodes)}_{part}" for part in range(parts)]
        self._nodes.append(helper.make_node("Split", [name], names, axis=axis, num_outputs=parts))
        return names

    def constant(self, value: Any) -> str:
        from onnx import numpy_helper

        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def normed(self, name: str) -> str:
        mean = self.node(
            "ReduceMean", self.node("Mul", name, name), self.constant(np.array([-1])), keepdims=1
        )
        return self.node(
            "Div", name, self.node("Sqrt", self.node("Add", mean, self.constant(self._weights.epsilon)))
        )

    def turned(self, name: str) -> str:
        """Rotate neighbouring channels: (a, b) -> (a cos - b sin, b cos + a sin)."""
        half = self._weights.embedding.shape[1] // self._weights.heads // 2
        heads = self._weights.heads
        pairs = self.node("Reshape", name, self.constant(np.array([heads, -1, half, 2])))
        even, odd = (
            self.node("Squeeze", part, self.constant(np.array([3]))) for part in self.split(pairs, 2, axis=3)
        )
        first = self.node("Sub", self.node("Mul", even, "cosine"), self.node("Mul", odd, "sine"))
        second = self.node("Add", self.node("Mul", odd, "cosine"), self.node("Mul", even, "sine"))
        last = self.constant(np.array([3]))
        both = self.node(
            "Concat", self.node("Unsqueeze", first, last), self.node("Unsqueeze", second, last), axis=3
        )
        return self.node("Reshape", both, self.constant(np.array([heads, -1, 2 * half])))


def joined(stack: Array) -> Array:
    """(blocks, in, out) with blocked outputs -> one (in, all out) matrix."""
    return np.concatenate(list(stack), axis=1)


def stacked(stack: Array) -> Array:
    """(blocks, in, out) with blocked inputs -> one (all in, out) matrix."""
    return np.concatenate(list(stack), axis=0)


def speed(forget: Callable[[], None], read: Callable[[list[int]], Array], rounds: int) -> tuple[float, float]:
    """Tokens per second, reading a prompt and writing one token after the other; the best of some rounds."""
    prompt = [1, *(20 + number % 60 for number in range(READ - 1))]
    best_read = best_write = 0.0
    for _ in range(rounds):
        forget()
        started = time.perf_counter()
        read(prompt)
        middle = time.perf_counter()
        for _ in range(WRITE):
            read([50])
        ended = time.perf_counter()
        best_read = max(best_read, READ / (middle - started))
        best_write = max(best_write, WRITE / (ended - middle))
    return best_read, best_write


def main() -> None:
    """Compare results first, then speeds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=SHIPPED_WEIGHTS)
    parser.add_argument("--threads", type=int, default=1, help="for ONNX Runtime")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    add_json_option(parser)
    arguments = parser.parse_args()
    report = Report(arguments.json)
    weights, _ = ModelFolder(arguments.folder).read()
    decoder = Decoder(weights)
    memory = decoder.make_cache()

    def forget() -> None:
        memory.length = 0

    def read(ids: list[int]) -> Array:
        return decoder.logits(decoder.read(decoder.embed(ids), memory))

    onnx = OnnxDecoder(weights, arguments.threads)
    difference = np.abs(read([1, 30, 40, 50, 60]) - onnx.read([1, 30, 40, 50, 60])).max()
    print(f"largest difference of a logit: {difference:.1e}")
    speeds = {
        "NumPy": speed(forget, read, arguments.rounds),
        "ONNX Runtime": speed(onnx.forget, onnx.read, arguments.rounds),
    }
    for name, found in speeds.items():
        print(f"{name:<13} reads {found[0]:>7,.0f} tokens/s   writes {found[1]:>6,.0f} tokens/s")
    for at, what in enumerate(("reading a prompt of 200 tokens", "writing 100 tokens")):
        report.add(
            Measurement(
                what=f"the embedded model, {what}", ours=speeds["NumPy"][at], peer=speeds["ONNX Runtime"][at],
                against="ONNX Runtime", unit="tokens/s", more_is_better=True,
                details={"largest difference of a logit": f"{difference:.1e}"},
            )
        )  # fmt: skip


if __name__ == "__main__":
    main()
