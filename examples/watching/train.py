"""Train a tiny Llama on sums modulo ten, on a CPU, and save a checkpoint every few steps.

    python train.py out --steps 300 --save_every 25

The training continues from its last complete checkpoint, so it can be killed at any time. Batches depend only on the step, so that
a training that was killed writes the same checkpoints as one that was not.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS = ["<pad>", "<s>", "+", "=", *map(str, range(10))]
BATCH = 64


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build a tokenizer with a token for each digit and sign."""
    tokenizer = Tokenizer(
        models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<pad>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", unk_token="<pad>"
    )


def build_model() -> LlamaForCausalLM:
    """Build the model, the same at every start."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=16, bos_token_id=1, pad_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def draw_batch(step: int) -> torch.Tensor:
    """Return sums as token ids: `3 + 9 = 2`."""
    draw = torch.Generator().manual_seed(step)
    first, second = torch.randint(0, 10, (2, BATCH), generator=draw)
    digit = WORDS.index("0")
    plus, equal = torch.full((BATCH,), WORDS.index("+")), torch.full((BATCH,), WORDS.index("="))
    return torch.stack([first + digit, plus, second + digit, equal, (first + second) % 10 + digit], dim=1)


def find_last_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint whose state, which is written last, is complete."""
    found = []
    for path in folder.glob("checkpoint-*/trainer_state.json"):
        try:
            found.append((json.loads(path.read_text())["global_step"], path.parent))
        except ValueError:
            continue
    return max(found)[1] if found else None


def save(
    folder: Path, step: int, model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, pause_s: float
) -> None:
    """Save a checkpoint in the layout of the Trainer of transformers; the state comes last."""
    path = folder / f"checkpoint-{step}"
    model.save_pretrained(path)
    time.sleep(pause_s)  # so that a watch sees unfinished checkpoints
    build_tokenizer().save_pretrained(path)
    torch.save(optimizer.state_dict(), path / "optimizer.pt")
    time.sleep(pause_s)
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--save_every", type=int, default=25)
    parser.add_argument("--pause", type=float, default=0.0, help="Seconds between the files of a checkpoint.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    model, begin = build_model(), 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    if last := find_last_checkpoint(options.folder):
        model = LlamaForCausalLM.from_pretrained(last)
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
        optimizer.load_state_dict(torch.load(last / "optimizer.pt", weights_only=True))
        begin = int(last.name.rpartition("-")[2])
    model.train()
    for step in range(begin + 1, options.steps + 1):
        tokens = draw_batch(step)
        logits = model(tokens).logits[:, -2]
        loss = torch.nn.functional.cross_entropy(logits, tokens[:, -1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % options.save_every == 0:
            save(options.folder, step, model, optimizer, options.pause)
            sys.stdout.write(f"step {step}: loss {loss.item():.3f}\n")


if __name__ == "__main__":
    main()
