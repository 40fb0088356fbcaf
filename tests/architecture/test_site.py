"""The documentation as a site, and that nothing of the task guides is left out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("ASSAY_SHARED", PROJECT.parent / "shared"))
TABLE = PROJECT / "docs" / "reference" / "task-guides.md"
ROW = re.compile(r"^\| (?P<heading>.+?) \| \[.+?\]\(.+?\) \| `(?P<test>[^`]+)` \|$", re.MULTILINE)


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=PROJECT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    pages = [page.relative_to(tmp_path).as_posix() for page in tmp_path.rglob("*.html")]
    assert {"index.html", "guides/viewer.html", "reference/commands.html"} <= set(pages)
    outside = re.compile(r'(?:src|href)="https?://(?!www\.mkdocs|squidfunk)[^"]+\.(?:js|css|woff2?)"')
    for page in pages:
        assert not outside.search((tmp_path / page).read_text("utf-8")), (
            f"{page} loads something from elsewhere"
        )


def test_every_test_that_is_named_is_there() -> None:
    rows = ROW.findall(TABLE.read_text("utf-8"))
    assert len(rows) > 30
    missing = [test for _, test in rows if not (PROJECT / test).is_file()]
    assert not missing


@pytest.mark.skipif(not (SHARED / "seeds").is_dir(), reason="the task guides are not here (ASSAY_SHARED)")
def test_every_heading_of_the_task_guides_is_covered() -> None:
    assert len(list((SHARED / "seeds").glob("*.txt"))) == TABLE.read_text("utf-8").count("\n## ")
    covered = {heading for heading, _ in ROW.findall(TABLE.read_text("utf-8"))}
    for path in sorted((SHARED / "seeds").glob("*.txt")):
        if "```" not in path.read_text("utf-8"):
            continue  # a page copied as plain text: its `#` are comments of YAML
        text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        for heading in re.findall(r"^#{1,4} (.+)$", text, re.MULTILINE):
            assert heading.strip() in covered, f"{path.name}: {heading}"
