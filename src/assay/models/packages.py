"""Check which packages a model needs and which versions are installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from assay.core.errors import MissingPackage

__all__ = ["package_versions", "wanted"]


def wanted(package: str, extra: str, purpose: str) -> str:
    """The version of the package a model lives in.

    Raises:
        MissingPackage: It is not installed.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        raise MissingPackage.of(package, purpose, extra=extra, where="--model") from None


def package_versions(*names: str) -> dict[str, str]:
    """The installed versions of packages whose change may change an answer."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
