"""Finding a browser that prints the PDF."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.core.errors import MissingPackage


def test_a_missing_browser_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from assay.viewer.report import find_browser

    monkeypatch.setenv("ASSAY_CHROMIUM", str(tmp_path / "nothing"))
    with pytest.raises(MissingPackage, match="no browser"):
        find_browser()
    monkeypatch.delenv("ASSAY_CHROMIUM")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPackage) as caught:
        find_browser()
    assert re.search(r"no browser found", caught.value.what)
    assert "print the HTML file" in caught.value.hint
