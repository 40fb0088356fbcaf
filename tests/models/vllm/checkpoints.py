"""The folder of the embedded model in the form that vLLM expects."""

from __future__ import annotations

import shutil
from pathlib import Path

from assay.models.embedded.adapter import SHIPPED_WEIGHTS

__all__ = ["make_embedded_checkpoint"]


def make_embedded_checkpoint(folder: Path) -> Path:
    from safetensors.numpy import load_file, save_file

    shutil.copytree(SHIPPED_WEIGHTS, folder, dirs_exist_ok=True)
    weights = load_file(SHIPPED_WEIGHTS / "model.safetensors")
    old, new = "vision_tower.", "vision_tower.vision_model."
    renamed = {
        name.replace(old, new, 1) if old in name and new not in name else name: value
        for name, value in weights.items()
    }
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
