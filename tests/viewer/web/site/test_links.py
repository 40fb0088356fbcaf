"""URLs of the viewer become files of a site."""

from __future__ import annotations

import pytest

from assay.viewer.web.site.links import Place, SiteLinks, SitePolicy, rewrite_links, to_file_name


def make_links(**changes: object) -> SiteLinks:
    policy = SitePolicy(**{"runs": frozenset({"a", "B b"}), "compared": ("a", "B b"), **changes})  # type: ignore[arg-type]
    return SiteLinks(
        policy,
        has_document=lambda run, task, number: number < 10,
        find_media=lambda run, digest: "png" if digest == "d" else "",
    )


@pytest.mark.parametrize(
    ("url", "file", "query"),
    [
        ("/", "index.html", ""),
        ("/?sort=score&order=desc", "runs-by-score-desc.html", ""),
        ("/runs/a", "runs/a/index.html", ""),
        ("/runs/a/documents", "runs/a/documents/index.html", ""),
        ("/runs/a/documents?page=3", "runs/a/documents/page-3.html", ""),
        ("/runs/a/documents?task=x%2Fy&outcome=failed", "runs/a/documents/index.html", "task=x%2Fy&outcome=failed"),
        ("/runs/a/documents/gsm8k/3?task=gsm8k&sort=score", "runs/a/tasks/gsm8k/3.html", ""),
        ("/runs/a/labels", "runs/a/labels.html", ""),
        ("/runs/a/plots", "runs/a/plots/index.html", ""),
        ("/runs/a/plots?task=gsm8k&metric=0", "runs/a/plots/gsm8k.html", ""),
        ("/runs/a/plots?metric=1&task=gsm8k", f"runs/a/plots/{to_file_name('gsm8k 1')}.html", ""),
        ("/compare/plots?run=a&run=B+b&baseline=a", "compare/plots/index.html", ""),
        ("/compare/plots?run=a&run=B+b&against=B+b&task=gsm8k", "compare/plots/gsm8k.html", ""),
        ("/compare?run=a&run=B+b&baseline=a", "compare/index.html", ""),
        ("/compare", "compare/index.html", ""),
        ("/compare?run=a&run=B+b&side=&page=1", "compare/index.html", ""),
        ("/compare/document?run=a&run=B+b&task=t&document=3&document=3&side=better", "compare/documents/t/3-3.html", ""),
        ("/static/123/vendor/x.js", "assets/vendor/x.js", ""),
        ("/media/a/d", "media/d.png", ""),
        ("/media/a/d/thumbnail", "media/d-thumbnail.png", ""),
    ],
)  # fmt: skip
def test_places(url: str, file: str, query: str) -> None:
    place = make_links().find(url)
    assert place is not None
    assert (place.file, place.query) == (file, query)


@pytest.mark.parametrize(
    "url",
    [
        "/?tag=x", "/runs/other", "/runs/a/labels?by=judges", "/runs/a/labels/gsm8k/3", "/compare/plots?run=a", "/compare/plots?run=a&run=B+b&baseline=B+b", "/runs/a/documents?where=score%3C1", "/runs/a/documents/gsm8k/10",
        "/runs/a/documents.jsonl", "/compare?run=a&run=other", "/compare?run=a&run=B+b&baseline=B+b", "/media/a/unknown",
        "/media/a/d/frames", "/events",
    ],
)  # fmt: skip
def test_what_needs_a_server_has_no_place(url: str) -> None:
    assert make_links().find(url) is None


def test_each_filter_of_a_history_has_its_page() -> None:
    url = "/matrix/history?task=sums&metric=exact_match&filter="
    places = [make_links().find(f"{url}{name}") for name in ("strict", "loose")]
    assert all(places) and len({place.file for place in places if place}) == 2


def test_policies() -> None:
    assert make_links(max_pages=2).find("/runs/a/documents?page=3") is None
    assert make_links(has_media=False).find("/media/a/d") is None
    assert make_links(has_filters=False).find("/runs/a/documents?task=x") is None
    assert make_links(compared=()).find("/compare") is None
    assert make_links(runs=frozenset({"a"})).find("/matrix") is None


@pytest.mark.parametrize(
    "text", ["..", "a/b", "A", "a", "con", "nul.txt", "x" * 300, "über", "\ud800", "a b", ".", "-"]
)
def test_file_names_are_safe_and_differ(text: str) -> None:
    name = to_file_name(text)
    assert name == name.lower() and len(name) <= 80 and "/" not in name and name.strip(".") == name
    assert to_file_name(name) == name
    assert name == text or to_file_name(text + "!") != name


def test_links_of_a_page_are_relative_and_dead_ones_are_removed() -> None:
    found: list[Place] = []
    page = '<a href="/runs/a/documents?task=t&amp;sort=score#x">1</a> <a class="b" href="/events">2</a> <p>&#34;/runs/a&#34;'
    written = rewrite_links(page, "runs/a/index.html", make_links(), found.append)
    assert '<a href="../../runs/a/documents/index.html?task=t&amp;sort=score#x">1</a>' in written
    assert '<a class="b">2</a>' in written
    assert [place.source for place in found] == ["/runs/a/documents"]
