from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from assay.core.errors import AssayError, TaskError
from assay.tasks.prompts.templates import compile_template, find_template_names


def render(source: str, **fields: Any) -> str:
    return compile_template(source, where="a.yaml:3, doc_to_text")(fields)


@pytest.mark.parametrize(
    ("source", "fields", "expected"),
    [
        ("", {}, ""),
        ("plain", {}, "plain"),
        ("a { b } % #", {}, "a { b } % #"),
        ("{{q}}?", {"q": "Why"}, "Why?"),
        ("{{q.strip()}}", {"q": " x "}, "x"),
        ("{{q}}", {"q": 5}, "5"),
        ("{{q}}", {"q": None}, "None"),
        ("{{q}}", {"q": "<b>&"}, "<b>&"),
        ("{{q}}\n", {"q": "x"}, "x\n"),
        ("plain\n", {}, "plain\n"),
        ("plain\n\n", {}, "plain\n\n"),
        ("a\r\nb\rc", {}, "a\nb\nc"),
        ("{{q}}\r\nb", {"q": "x\r\ny"}, "x\r\ny\nb"),
        ("{% if q %}\n yes\n{% endif %}\nend", {"q": 1}, "\n yes\n\nend"),
        ("{# note #}x", {}, "x"),
        ("{{ q[1:] | join('-') }}", {"q": ["a", "b", "c"]}, "b-c"),
        ("{{ choices.index(a) }}", {"choices": ["x", "y"], "a": "y"}, "1"),
        ("{{ choices['text'][0] }}", {"choices": {"text": ["x"]}}, "x"),
        ("{{ d.items }}", {"d": {"a": 1}}, "<built-in method"),
        ("{{ d.key }}", {"d": {"key": "value"}}, "value"),
        ("{% for i in range(3) %}{{i}}{% endfor %}", {}, "012"),
        ("{% set x = q %}{{x}}{{x}}", {"q": "a"}, "aa"),
        ("{{ 'a' if q is defined else 'b' }}", {}, "b"),
        ("{{ q | regex_replace('[0-9]+', '#') }}", {"q": "a1b22"}, "a#b#"),
        ("{{ q | regex_replace('([a-z])', '<\\\\1>', 1) }}", {"q": "ab"}, "<a>b"),
        ("{{ q | length }}", {"q": [1, 2]}, "2"),
        ("{{q}}", {"q": "{{ secret }}"}, "{{ secret }}"),
        ("{% raw %}{{q}}{% endraw %}", {}, "{{q}}"),
    ],
)
def test_a_template_becomes_text(source: str, fields: dict[str, Any], expected: str) -> None:
    text = render(source, **fields)
    assert text.startswith(expected) if expected.startswith("<built-in") else text == expected


def test_a_text_without_markup_does_not_look_at_the_document() -> None:
    class Untouchable(dict[str, Any]):
        def keys(self) -> Any:
            raise AssertionError("looked")

        def __getitem__(self, key: str) -> Any:
            raise AssertionError("looked")

    assert compile_template("Answer:\r\n")(Untouchable()) == "Answer:\n"


def test_rendering_changes_nothing_in_the_document() -> None:
    fields = {"q": [1, 2]}
    with pytest.raises(TaskError):
        compile_template("{{ q.append(3) }}")(fields)
    assert fields == {"q": [1, 2]}


@pytest.mark.parametrize(
    "source",
    [
        "{{ q.__class__ }}",
        "{{ q['__class__'] }}",
        "{{ q | attr('__class__') }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ q.__init__.__globals__ }}",
        "{{ range.__self__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ lipsum.__globals__['os'] }}",
        "{{ self.__init__ }}",
        "{{ self._TemplateReference__context }}",
        "{{ '{0.__class__}'.format(q) }}",
        "{{ '{x.__class__}'.format_map({'x': q}) }}",
        "{{ function.__code__ }}",
        "{{ function.__globals__ }}",
        "{{ generator.gi_frame }}",
        "{{ items.append(1) }}",
        "{{ items.clear() }}",
        "{{ mapping.update({'a': 1}) }}",
        "{{ range(1000000000) | list }}",
        "{% include 'secret' %}",
        "{% import 'os' as os %}",
        "{% extends 'secret' %}",
    ],
)
def test_the_sandbox_lets_nothing_out(source: str) -> None:
    fields = {
        "q": "text",
        "function": lambda: None,
        "generator": (character for character in "text"),
        "items": [],
        "mapping": {},
    }
    with pytest.raises(TaskError) as caught:
        render(source, **fields)
    assert caught.value.where == "a.yaml:3, doc_to_text"
    assert fields["items"] == [] and fields["mapping"] == {}


@pytest.mark.parametrize(
    ("source", "message", "hint"),
    [
        ("{{ q", "invalid template", "in `{{ q`"),
        ("{% if q %}x", "invalid template", "in `{% if q %}x`"),
        ("ok\n{{ q | nofilter }}", "nofilter", "in `{{ q | nofilter }}`"),
        ("{% nonsense %}", "invalid template", "nonsense"),
    ],
)
def test_a_template_that_is_not_jinja_is_refused_when_compiled(source: str, message: str, hint: str) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        compile_template(source, where="a.yaml:3")
    assert caught.value.where == "a.yaml:3"
    assert hint in caught.value.hint


def test_a_missing_column_is_named_with_the_nearest_and_all_there_are() -> None:
    with pytest.raises(TaskError) as caught:
        render("{{ qestion }} {{ answer }}", question="x", answer="y")
    assert caught.value.what == "the template uses `qestion`, which the document does not have"
    assert caught.value.hint == "did you mean `question`? columns: question, answer"


@pytest.mark.parametrize(
    ("source", "fields", "message"),
    [
        ("{{ zzz }}", {"question": 1}, "uses `zzz`"),
        ("{{ zzz }}", {}, "uses `zzz`"),
        ("{{ zzz.strip() }}", {"q": 1}, "uses `zzz`"),
        ("{% if zzz %}{% endif %}", {"q": 1}, "uses `zzz`"),
        ("{% for x in zzz %}{% endfor %}", {"q": 1}, "uses `zzz`"),
        ("{{ q.nothing }}", {"q": {}}, "nothing"),
        ("{{ q[5] }}", {"q": []}, "the template fails"),
        ("{{ q + 1 }}", {"q": "x"}, "TypeError"),
        ("{{ 1 / q }}", {"q": 0}, "ZeroDivisionError"),
        ("{{ q.index('z') }}", {"q": ["a"]}, "ValueError"),
        ("{{ q | int + 'x' }}", {"q": 1}, "TypeError"),
        ("{{ q() }}", {"q": 1}, "TypeError"),
        ("{{ q | regex_replace('(', '') }}", {"q": "x"}, "the template fails"),
        ("{{ q | regex_replace('a', 'b') }}", {"q": 5}, "TypeError"),
        ("{% for i in range(30000000) %}{% endfor %}", {}, "the template fails"),
    ],
)
def test_a_template_that_fails_on_a_document_says_so(
    source: str, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        render(source, **fields)
    assert caught.value.where == "a.yaml:3, doc_to_text"


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", id="deep brackets"),
        pytest.param("{% for i in q %}" * 30 + "{% endfor %}" * 30, id="deep loops"),
        pytest.param("{% if q %}" * 400 + "{% endif %}" * 400, id="deep conditions"),
    ],
)
def test_a_template_nested_beyond_reason_is_refused(source: str) -> None:
    with pytest.raises(AssayError):
        render(source, q=[1])


def test_the_names_of_a_template_are_those_it_takes_from_the_document() -> None:
    source = "{{ q }}{% set x = a %}{% for y in b %}{{ x }}{{ y }}{% endfor %}{{ range(2) }}"
    assert find_template_names(source) == {"q", "a", "b", "range"} - {"range"} | (
        {"range"} & find_template_names(source)
    )


ANY_TEXT = st.text(st.characters(codec=None), max_size=40)
PIECES = st.lists(
    st.sampled_from(
        "{{|}}|{%|%}|{#|#}| q |.|[|]|(|)|'|\"|__class__|if |for x in |endif|endfor|set x=|\\|||join|attr|map|0|1|-|+|*|~|\n".split(
            "|"
        )
    ),
    max_size=14,
).map("".join)


@given(value=ANY_TEXT)
@example(value="{{ 7 * 7 }}")
@example(value="\ud800")
@example(value="\x00\r\n")
def test_the_text_of_a_document_goes_through_as_it_is(value: str) -> None:
    assert render("<{{ q }}>", q=value) == f"<{value}>"


@given(
    source=st.one_of(PIECES, ANY_TEXT),
    value=st.one_of(ANY_TEXT, st.integers(), st.none(), st.lists(st.text(max_size=2))),
)
def test_whatever_the_template_only_our_errors_come_out(source: str, value: Any) -> None:
    with suppress(AssayError):
        assert isinstance(render(source, q=value), str)
