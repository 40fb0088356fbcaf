"""PDF output: an installed Chromium, Chrome or Edge prints the HTML page."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from assay.core.errors import MissingPackage, OutputError

__all__ = ["find_browser", "write_pdf"]

_BROWSER_NAMES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
    "chrome",
    "microsoft-edge",
    "msedge",
)
_BROWSER_PATHS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_BROWSER_VARIABLE = "ASSAY_CHROMIUM"
_TIMEOUT_S = 180.0
_WINDOW = "720,1000"
"""As wide as the printed page, so that charts are drawn in their final size."""


def find_browser() -> str:
    """Return the browser that prints: the one `ASSAY_CHROMIUM` names, or the first that is installed.

    Raises:
        MissingPackage: No browser is installed.
    """
    named = os.environ.get(_BROWSER_VARIABLE)
    if named:
        if found := shutil.which(named):
            return found
        raise MissingPackage(f"no browser at `{named}`", where=_BROWSER_VARIABLE)
    for name in (*_BROWSER_NAMES, *_BROWSER_PATHS):
        if found := shutil.which(name):
            return found
    raise MissingPackage(
        "no browser found to print the PDF: Chromium, Chrome or Edge is needed",
        where="--pdf",
        hint=f"install one or set {_BROWSER_VARIABLE} to its path; or print the HTML file from a browser",
    )


def write_pdf(page: str, path: Path, *, browser: str) -> None:
    """Print an HTML page to a PDF file.

    Raises:
        OutputError: The browser failed to print it.
    """
    with tempfile.TemporaryDirectory(prefix="assay-pdf-") as folder:
        source, printed = Path(folder, "page.html"), Path(folder, "page.pdf")
        source.write_text(page, "utf-8", errors="backslashreplace")
        command = [
            browser,
            "--headless",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--no-first-run",
            "--no-pdf-header-footer",
            f"--user-data-dir={folder}/profile",
            f"--window-size={_WINDOW}",
            f"--print-to-pdf={printed}",
            *(["--no-sandbox"] if _is_root() else []),  # Chromium's sandbox does not start as root
            source.as_uri(),
        ]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise OutputError(
                f"`{browser}` did not finish printing in {_TIMEOUT_S:g} s", where=str(path)
            ) from None
        except OSError as error:
            raise OutputError(f"cannot start `{browser}`: {error.strerror}", where=str(path)) from None
        content = printed.read_bytes() if printed.is_file() else b""
        if not content.startswith(b"%PDF"):
            messages = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise OutputError(
                f"`{browser}` wrote no PDF (exit code {done.returncode})",
                where=str(path),
                hint=messages[-1][:300] if messages else "",
            )
    from assay.viewer.atomic_files import write_atomically

    write_atomically(path, content)


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0
