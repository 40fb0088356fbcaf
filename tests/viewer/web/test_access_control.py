"""Access control: token, host name, origin, security headers."""

from __future__ import annotations

import pytest
from tests.viewer.web.viewer_server import TOKEN, Viewer

from assay.store.runs.run import Run
from assay.viewer.web.access_control import POLICY


def test_requests_without_the_token_are_refused(viewer: Viewer) -> None:
    for path in ("/", "/compare", "/static/x/page.js", "/events", "/nowhere", "/?token=wrong"):
        answer = viewer.get(path, cookie=False)
        assert answer.status == 403
        assert b"assay view" in answer.body


def test_a_person_without_the_token_gets_a_page_that_says_how_to_get_it(viewer: Viewer) -> None:
    answer = viewer.get("/compare?run=a&run=%22%3E%3Cb%3E&token=wrong", cookie=False, accept="text/html,*/*")
    assert answer.status == 403
    assert answer.headers["content-security-policy"] == POLICY
    assert "assay view --bundle" in answer.text
    assert '<form action="/compare" method="get"><input type="hidden" name="run" value="a">' in answer.text
    assert 'value="&quot;&gt;&lt;b&gt;"' in answer.text and "wrong" not in answer.text
    assert TOKEN not in answer.text


def test_the_page_without_a_token_cannot_send_it_to_another_host(viewer: Viewer) -> None:
    answer = viewer.get("//evil.example/", cookie=False, accept="text/html")
    assert 'action="/evil.example/"' in answer.text


def test_the_token_in_the_url_is_replaced_by_a_cookie(viewer: Viewer) -> None:
    answer = viewer.get(f"/compare?run=a&token={TOKEN}", cookie=False)
    assert answer.status == 200
    assert answer.headers["set-cookie"].endswith("Path=/; HttpOnly; SameSite=Strict")
    assert 'content="0; url=/compare?run=a"' in answer.text
    assert TOKEN not in answer.text


def test_a_url_cannot_redirect_to_another_host(viewer: Viewer) -> None:
    answer = viewer.get(f"//evil.example/?token={TOKEN}", cookie=False)
    assert 'url=/evil.example/"' in answer.text


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:80", ""])
def test_an_unknown_host_name_is_refused(viewer: Viewer, host: str) -> None:
    assert viewer.get("/", host=host).status == 421


@pytest.mark.parametrize("host", ["127.0.0.1:1234", "localhost:8321", "localhost"])
def test_a_forwarded_port_is_accepted(viewer: Viewer, host: str) -> None:
    assert viewer.get("/", host=host).status == 200


def test_every_response_has_the_security_policy_and_allows_no_other_origin(viewer: Viewer) -> None:
    for path in ("/", "/nowhere", "/static/x/style.css", "/counts?run=nothing"):
        headers = viewer.get(path, origin="http://evil.example").headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert not any(name.startswith("access-control") for name in headers)
    assert "'unsafe-inline'" not in POLICY.replace("style-src-attr 'unsafe-inline'", "")
    assert "unsafe-eval" not in POLICY


def test_cross_origin_requests_cannot_change_tags(viewer: Viewer, runs: tuple[Run, Run]) -> None:
    path = f"/runs/{runs[0].id}/tags"
    body = '{"tags": ["mine"]}'
    assert viewer.get(path, method="POST", body=body, origin="http://evil.example").status == 403
    assert viewer.get(path, method="POST", body=body, sec_fetch_site="cross-site").status == 403
    assert viewer.get(path, method="POST", body=body, cookie=False).status == 403
    assert not (runs[0].folder / "tags.json").exists()
