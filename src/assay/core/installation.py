"""How this copy of Assay is installed: its version, and the command that adds an extra to it.

The distribution is called `assay-harness`, because `assay` on PyPI is another project. The package and the command are
called `assay`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from assay.core.entry_points import ImportPathStamp

__all__ = [
    "DISTRIBUTION",
    "assay_version",
    "find_distribution_name",
    "format_install_command",
    "format_plugin_install_command",
    "merge_install_commands",
]

DISTRIBUTION = "assay-harness"

_DISTRIBUTION_NAMES = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "absl": "absl-py",
    "antlr4": "antlr4-python3-runtime==4.11.0",
    "attr": "attrs",
    "azure": "azure-identity",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "ffmpeg": "ffmpeg-python",
    "fitz": "pymupdf",
    "git": "gitpython",
    "google": "google-genai",
    "google.auth": "google-auth",
    "google.generativeai": "google-generativeai",
    "google.protobuf": "protobuf",
    "iso639": "iso639-lang",
    "jose": "python-jose",
    "jwt": "pyjwt",
    "magic": "python-magic",
    "pkg_resources": "setuptools",
    "pptx": "python-pptx",
    "rapidocr": "rapidocr-onnxruntime",
    "reka": "reka-api",
    "rouge_score": "rouge-score",
    "skimage": "scikit-image",
    "serial": "pyserial",
    "sklearn": "scikit-learn",
    "speech_recognition": "speechrecognition",
    "whisper": "openai-whisper",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
"""Import names of packages that are called otherwise on PyPI. SymPy reads LaTeX with one version of ANTLR."""

_EXTRAS = re.compile(r"^(.*)\[([\w,-]+)\]$")


def assay_version() -> str:
    """Return the installed version, or `unknown` where Assay is imported without being installed."""
    from assay.core.entry_points import stamp_import_path

    return _read_version(stamp_import_path())


@lru_cache(maxsize=1)
def _read_version(_: ImportPathStamp) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def format_install_command(*extras: str) -> str:
    """Return the pip command that installs Assay with these extras over the present installation.

    An editable installation names its folder, an installation from a folder names that folder, and every other one
    names the distribution:

        pip install -e '/srv/assay[datasets]'
        pip install 'assay-harness[datasets]'
    """
    names = f"[{','.join(extras)}]" if extras else ""
    folder, is_editable = _find_source_folder()
    if folder is None:
        return f"pip install {shlex.quote(DISTRIBUTION + names)}"
    return f"pip install {'-e ' if is_editable else ''}{shlex.quote(f'{folder}{names}')}"


def find_distribution_name(module: str) -> str:
    """Return the name on PyPI of the package that a module belongs to.

    >>> find_distribution_name("sklearn.metrics"), find_distribution_name("zss"), find_distribution_name("google.auth.aws")
    ('scikit-learn', 'zss', 'google-auth')
    """
    parts = module.split(".")
    part = _DISTRIBUTION_NAMES.get(".".join(parts[:2]))  # several distributions share the folder `google`
    return part or _DISTRIBUTION_NAMES.get(parts[0], parts[0])


def merge_install_commands(commands: Iterable[str]) -> str:
    """Return one pip command for several, without repetition; empty if there is none.

    >>> merge_install_commands(["pip install zss", "pip install 'a[x]'", "pip install 'a[y]'", "pip install zss"])
    "pip install 'a[x,y]' zss"
    """
    extras: dict[tuple[str, str], set[str]] = {}
    plain: dict[str, None] = {}
    for command in commands:
        words = shlex.split(command)
        if words[:2] != ["pip", "install"] or "&&" in words:
            continue
        flag = ""
        for word in words[2:]:
            match = _EXTRAS.match(word)
            if word == "-e":
                flag = "-e "
            elif match:
                extras.setdefault((flag, match[1]), set()).update(match[2].split(","))
            else:
                plain[f"{flag}{shlex.quote(word)}"] = None
    named = []
    for (flag, name), chosen in extras.items():
        listed = ",".join(sorted(chosen))
        named.append(flag + shlex.quote(f"{name}[{listed}]"))
    words = [*named, *sorted(plain)]
    return f"pip install {' '.join(words)}" if words else ""


def format_plugin_install_command(distribution: str) -> str:
    """Return the pip command that installs a plugin of this project (`assay-plugin-NAME`, in `plugins/NAME` of a checkout)."""
    folder, is_editable = _find_source_folder()
    plugin = folder / "plugins" / distribution.removeprefix("assay-plugin-") if folder is not None else None
    if plugin is None or not plugin.is_dir():
        return f"pip install {distribution}"
    return f"pip install {'-e ' if is_editable else ''}{shlex.quote(str(plugin))}"


def _find_source_folder() -> tuple[Path | None, bool]:
    """Return the folder Assay was installed from, if it was, and whether it is installed as editable."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        recorded = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        checkout = Path(__file__).resolve().parents[3]
        return (checkout, True) if (checkout / "pyproject.toml").is_file() else (None, False)
    origin = json.loads(recorded) if recorded else {}
    if "dir_info" not in origin:
        return None, False
    from urllib.request import url2pathname  # loads an HTTP client, and every command loads this module

    folder = Path(url2pathname(urlsplit(origin["url"]).path))
    return folder, bool(origin["dir_info"].get("editable"))
