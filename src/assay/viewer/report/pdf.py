"""A page as PDF, printed by a browser that is installed: Chromium, Chrome or Edge."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from assay.core.errors import BadOutput, MissingPackage

__all__ = ["find_browser", "write_pdf"]

_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
    "chrome",
    "microsoft-edge",
    "msedge",
)
_PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_VARIABLE = "ASSAY_CHROMIUM"
_TIMEOUT_S = 180.0
_WINDOW = "720,1000"
"""As wide as the page it is printed on, so that charts are drawn in their size on paper."""


def find_browser() -> str:
    """The browser to print with: what `ASSAY_CHROMIUM` names, or the first that is found.

    Raises:
        MissingPackage: There is none.
    """
    named = os.environ.get(_VARIABLE)
    if named:
        if found := shutil.which(named):
            return found
        raise MissingPackage(f"there is no browser at `{named}`", where=_VARIABLE)
    for name in (*_NAMES, *_PLACES):
        if found := shutil.which(name):
            return found
    raise MissingPackage(
        "a PDF is printed by Chromium, Chrome or Edge, and none was found",
        where="--pdf",
        hint=f"install one, or name it in {_VARIABLE}; or open the HTML file in a browser and print it",
    )


def write_pdf(page: str, path: Path, *, browser: str) -> None:
    """Print a page.

    Raises:
        BadOutput: The browser did not make a PDF of it.
    """
    with tempfile.TemporaryDirectory(prefix="assay-pdf-") as folder:
        source, made = Path(folder, "page.html"), Path(folder, "page.pdf")
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
            f"--print-to-pdf={made}",
            *(["--no-sandbox"] if _is_root() else []),  # Chromium's own sandbox refuses to start for root
            source.as_uri(),
        ]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise BadOutput(
                f"`{browser}` did not finish printing in {_TIMEOUT_S:g} s", where=str(path)
            ) from None
        except OSError as error:
            raise BadOutput(f"`{browser}` cannot be started: {error.strerror}", where=str(path)) from None
        content = made.read_bytes() if made.is_file() else b""
        if not content.startswith(b"%PDF"):
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise BadOutput(
                f"`{browser}` made no PDF (exit code {done.returncode})",
                where=str(path),
                hint=said[-1][:300] if said else "",
            )
    from assay.viewer.files import write_whole

    write_whole(path, content)


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0
