"""Check which packages a model needs and which versions are installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from assay.core.errors import MissingPackage

__all__ = ["find_package_versions", "require_package"]


def require_package(package: str, extra: str, purpose: str) -> str:
    """Return the version of a package that a model needs.

    Raises:
        MissingPackage: It is not installed.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        raise MissingPackage.of(package, purpose, extra=extra, where="--model") from None


def find_package_versions(*names: str) -> dict[str, str]:
    """Return the installed versions of packages that can affect answers. Missing packages are left out."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
