"""Record the answers of lm_eval's `hf` for a tiny checkpoint. Needs lm_eval, torch and accelerate.

    python -m tests.models.hf.record      # from the checkout; writes recorded.json beside this file

Without its logits cache: with it, a continuation of one token that shares its inputs with a longer one gets the
log-probability of another place. The checkpoint's weights are drawn by NumPy, so they are the same wherever they are made; its tokenizer is in the recording.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from tests.models.hf.tiny_checkpoints import make_checkpoint

__all__ = ["ARGUMENTS", "GENERATED", "PAIRS", "RECORDED", "ROLLED"]

RECORDED = Path(__file__).parent / "recorded.json"
ARGUMENTS: dict[str, dict[str, Any]] = {
    "llama": {"max_length": 48},
    "gpt2": {"max_length": 48},
    "t5": {"max_length": 48},
    "llama without a start token": {"max_length": 48, "add_bos_token": False},
}
SHOTS = "Question: is the sky blue? Answer: what the cat sat on.\n\n"
PAIRS = [
    ("the sky is", " blue"),
    ("the sky is ", "blue"),
    ("the sky is", " what the cat sat on"),
    ("", "the answer"),
    (SHOTS * 4 + "Question: a time", " once"),
    (SHOTS * 4 + "Question: a time", " upon a time"),
    ("<s>the", " cat"),
    ("the\n", "cat"),
    ("é€🙂", " 🙂"),
]
ROLLED = ["the cat sat on the answer", SHOTS * 5, "a", "é🙂 " * 12]
GENERATED: list[tuple[str, dict[str, Any]]] = [
    ("the sky is", {"until": ["\n"], "max_gen_toks": 12, "do_sample": False}),
    (SHOTS * 4, {"until": ["Q", "e"], "max_gen_toks": 16}),
    (SHOTS + "Question", {"until": [], "max_gen_toks": 20, "temperature": 0.0}),
    ("<s>[user]once</s>", {"until": ["</s>"], "max_gen_toks": 8}),
]


def main() -> None:
    from lm_eval.models.huggingface import HFLM  # type: ignore[import-not-found,unused-ignore]

    found: dict[str, Any] = {"lm_eval": "0.4.13"}
    with TemporaryDirectory() as name:
        for title, arguments in ARGUMENTS.items():
            folder = make_checkpoint(Path(name) / title, title.split()[0])
            found["tokenizer"] = json.loads((folder / "tokenizer.json").read_text())
            model = HFLM(
                pretrained=str(folder),
                dtype="float32",
                device="cpu",
                batch_size=1,
                logits_cache=False,
                **arguments,
            )

            def ask(items: list[Any]) -> list[Any]:
                return [SimpleNamespace(args=item, task_name="t") for item in items]

            found[title] = {
                "likelihoods": model.loglikelihood(ask(PAIRS), disable_tqdm=True),
                "rolling": model.loglikelihood_rolling(ask([(text,) for text in ROLLED]), disable_tqdm=True),
                "texts": [model.generate_until(ask([one]), disable_tqdm=True)[0] for one in GENERATED],
            }
    RECORDED.write_text(json.dumps(found, ensure_ascii=True, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
