from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.making import ask

from assay.core.errors import DatasetError, InvalidOption
from assay.core.ports import Model
from assay.core.records.messages import Audio, Message, Part, Prompt, Text
from assay.core.records.messages import Image as ImagePart
from assay.core.records.requests import Generate, Likelihood, Request, Settings
from assay.core.records.responses import Failure, LogProbability, Outcome, Response
from assay.models.embedded import EmbeddedModel

GREEDY = {"until": ["\n"], "max_gen_toks": 20, "do_sample": False}
APPLES = "Tom has 12 apples and gets 30 more. How many apples now?"
SAMPLED = {"until": ["\n"], "max_gen_toks": 20, "do_sample": True, "temperature": 2.0}


def answers(requests: Sequence[Request], **arguments: Any) -> dict[str, Outcome]:
    outcomes = ask(EmbeddedModel(**arguments), *requests)
    return {request.id: outcome for request, outcome in zip(requests, outcomes, strict=True)}


def value(request: Request, **arguments: Any) -> str | LogProbability:
    outcome = answers([request], **arguments)[request.id]
    assert isinstance(outcome, Response), outcome
    return outcome.value


def generate(prompt: Prompt, settings: dict[str, Any] | None = None, repeat: int = 0) -> Generate:
    return Generate(task="t", document=0, prompt=prompt, settings=Settings(settings or GREEDY), repeat=repeat)


def likelihood(text: str, continuation: str) -> Likelihood:
    return Likelihood(task="t", document=0, prompt=Prompt.of_text(text), continuation=continuation)


def chat(*parts: Part, more: tuple[Message, ...] = ()) -> Prompt:
    return Prompt((Message("user", parts), *more), chat=True)


def test_it_is_a_model() -> None:
    assert isinstance(EmbeddedModel(), Model)
    assert EmbeddedModel().name == "embedded"
    assert EmbeddedModel().traits.abilities == {"generate", "likelihood", "rolling", "chat", "image"}


def test_it_is_identified_before_it_is_opened() -> None:
    facts = asyncio.run(EmbeddedModel().identify())
    assert len(facts["weights_sha256"]) == len(facts["template_sha256"]) == 64
    assert asyncio.run(EmbeddedModel().identify()) == facts
    assert asyncio.run(EmbeddedModel(seed=3).identify()) != facts


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"pretrained": "gpt2", "x": 1}, "`pretrained`, `x`"), ({"seed": "many"}, "integer")],
)
def test_invalid_arguments_are_an_error(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        EmbeddedModel(**arguments)


def test_a_folder_without_a_model_is_an_error_with_the_missing_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", "utf-8")
    with pytest.raises(DatasetError, match=r"missing files in the model folder: model.safetensors"):
        asyncio.run(EmbeddedModel(weights=tmp_path).open())


def test_another_kind_of_model_is_an_error(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"):
        (tmp_path / name).write_text('{"model_type": "llama"}', "utf-8")
    with pytest.raises(DatasetError, match="not a Llava model"):
        asyncio.run(EmbeddedModel(weights=tmp_path).open())


def test_a_plain_prompt_is_passed_unchanged() -> None:
    assert value(generate(Prompt.of_text("12 + 30 ="))) == " 42"


def test_a_chat_uses_the_template() -> None:
    assert value(generate(chat(Text(APPLES)))) == "12 + 30 = 42"


def test_an_open_answer_is_continued() -> None:
    begun = Message("assistant", (Text("12 + 30 = "),))
    answer = value(generate(chat(Text(APPLES), more=(begun,))))
    assert isinstance(answer, str)
    assert answer.strip() == "42"


def test_an_empty_open_answer_is_a_new_reply() -> None:
    begun = Message("assistant", (Text(""),))
    assert value(generate(chat(Text(APPLES), more=(begun,)))) == "12 + 30 = 42"


def test_images_are_read_in_chat_and_plain_prompts(red_square: Image.Image) -> None:
    picture = ImagePart(digest="red", load=lambda: red_square)
    plain = "\nQuestion: What color is the shape?\nAnswer:"
    assert value(generate(chat(picture, Text("What color is the shape?")))) == "red"
    assert value(generate(Prompt((Message("user", (picture, Text(plain))),)))) == " red"
    assert value(generate(Prompt((Message("user", (picture, Text("<image>" + plain))),)))) == " red"


def test_an_error_fails_only_its_request(red_square: Image.Image) -> None:
    def broken() -> Any:
        raise OSError("cannot identify image file")

    good = generate(Prompt.of_text("12 + 30 ="))
    bad = [
        generate(chat(ImagePart(digest="b", load=broken), Text("?"))),
        generate(chat(Audio(digest="a", load=broken), Text("?"))),
        generate(chat(ImagePart(digest="c", load=lambda: "not a picture"), Text("?"))),
        generate(Prompt.of_text("<image> but none is there")),
    ]
    found = answers([bad[0], good, *bad[1:]])
    failures = [found[request.id] for request in bad]
    assert isinstance(found[good.id], Response)
    assert [failure.kind for failure in failures if isinstance(failure, Failure)] == [
        "bad media",
        "bad media",
        "bad media",
        "bad request",
    ]


def test_trailing_whitespace_of_a_context_belongs_to_the_continuation() -> None:
    assert value(likelihood("Question: What is 12 + 30?\nAnswer: ", "42")) == value(
        likelihood("Question: What is 12 + 30?\nAnswer:", " 42")
    )


def test_the_correct_sum_is_greedy() -> None:
    right = value(likelihood("12 + 30 =", " 42"))
    wrong = value(likelihood("12 + 30 =", " 43"))
    assert isinstance(right, LogProbability)
    assert isinstance(wrong, LogProbability)
    assert right.greedy
    assert not wrong.greedy
    assert right.total > wrong.total


def test_without_context_the_start_token_is_the_context() -> None:
    alone, after = value(likelihood("", "Once upon a time")), value(likelihood("<s>", "Once upon a time"))
    assert isinstance(alone, LogProbability)
    assert alone == after
    assert math.isfinite(alone.total)


def test_answers_do_not_depend_on_the_window() -> None:
    requests: list[Request] = [
        *(
            likelihood(f"Question: What is {n} + 30?\nAnswer:", f" {n + k}")
            for n in (11, 12)
            for k in (30, 31)
        ),
        *(generate(Prompt.of_text("12 + 30 ="), SAMPLED, repeat) for repeat in range(4)),
    ]
    together = answers(requests)
    for request in reversed(requests):
        outcome = together[request.id]
        assert isinstance(outcome, Response)
        assert value(request) == outcome.value


def test_the_seed_changes_sampled_answers_and_the_setting_comes_first() -> None:
    prompt = Prompt.of_text("Once upon a time, there was")
    settings = {"max_gen_toks": 30, "temperature": 2.0}
    assert value(generate(prompt, settings), seed=1) != value(generate(prompt, settings), seed=2)
    fixed = {**settings, "seed": 5}
    assert value(generate(prompt, fixed), seed=1) == value(generate(prompt, fixed), seed=2)


def test_usage_and_finish_are_reported() -> None:
    request = generate(Prompt.of_text("12 + 30 ="))
    outcome = answers([request])[request.id]
    assert isinstance(outcome, Response)
    assert outcome.finish == "stop"
    assert outcome.usage is not None
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (10, 4)
    assert outcome.seconds is not None


def test_truncated_tokens_are_counted_and_predicted() -> None:
    text = "word " * 300
    requests: list[Request] = [
        generate(Prompt.of_text(text)),
        likelihood(text, " 7"),
        generate(Prompt.of_text("2 + 2 =")),
        likelihood("2 + 2 =", " 4"),
    ]
    outcomes = ask(EmbeddedModel(), *requests)
    usages = [one.usage for one in outcomes if isinstance(one, Response) and one.usage is not None]
    counts = [one.truncated_tokens for one in usages]
    assert counts == [len("<" + text) - (1024 - 20), len("<" + text.rstrip()) - (1025 - 3), 0, 0]
    model = EmbeddedModel()
    expected = [model.preview_truncation(request) for request in requests]
    assert [one and (one.tokens, one.truncated_tokens) for one in expected] == [
        (usages[0].input_tokens, counts[0]), (usages[1].input_tokens, counts[1]), None, None,
    ]  # fmt: skip
    assert expected[0] is not None and expected[0].text == text[-1004:]
    assert [model.count_input_tokens(request) for request in requests] == [one.input_tokens for one in usages]
