"""The packaged model, loaded once, and test images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from assay.models.embedded.adapter import SHIPPED_WEIGHTS
from assay.models.embedded.engine import EmbeddedEngine


@pytest.fixture(scope="session")
def folder() -> Path:
    return SHIPPED_WEIGHTS


@pytest.fixture(scope="session")
def engine(folder: Path) -> EmbeddedEngine:
    return EmbeddedEngine(folder)


@pytest.fixture
def red_square() -> Image.Image:
    pixels = np.full((32, 32, 3), 240, dtype=np.uint8)
    pixels[8:26, 6:24] = (215, 35, 35)
    return Image.fromarray(pixels)


@pytest.fixture
def noise() -> Image.Image:
    """Larger than the model's own size and not square, so that resizing is tested too."""
    return Image.fromarray(np.random.default_rng(5).integers(0, 255, (48, 77, 3), dtype=np.uint8))
