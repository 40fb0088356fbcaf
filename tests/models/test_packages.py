"""Packages that a model needs."""

from __future__ import annotations

import pytest

from assay.core.errors import MissingPackage
from assay.core.installation import format_install_command
from assay.models.packages import find_package_versions, require_package


def test_a_missing_package_is_an_error_with_its_extra() -> None:
    with pytest.raises(MissingPackage) as caught:
        require_package("no-such-package", "ocr", "the model `ocr`")
    assert format_install_command("ocr") in caught.value.hint
    assert find_package_versions("no-such-package", "numpy").keys() == {"numpy"}


def test_an_installed_package_has_a_version() -> None:
    assert require_package("numpy", "hf", "a test") == find_package_versions("numpy")["numpy"]
