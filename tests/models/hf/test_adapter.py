"""`HfModel`: likelihoods, chat templates, reasoning, limits, errors."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.models.hf.hf_requests import ask, chat, generate, likelihood, rolling
from tests.models.hf.tiny_checkpoints import tiny_checkpoint

from assay.core.errors import DatasetError, InvalidOption, UnsupportedRequest, UserError
from assay.core.records.messages import Image, Message, Prompt
from assay.core.records.requests import Request
from assay.core.records.responses import Failure, LogProbability, Outcome, Response
from assay.models import make_model
from assay.models.hf import HfModel

pytestmark = pytest.mark.torch


def value(outcome: Outcome) -> Any:
    assert isinstance(outcome, Response), outcome
    return outcome.value


def compute_expected(kind: str, tokens: list[int], count: int) -> LogProbability:
    """Return the log probability of the last `count` tokens from one forward pass."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_checkpoint(kind))
    with torch.inference_mode():
        logits = model(torch.tensor([tokens[:-1]])).logits[0, -count:].log_softmax(-1)
    last = torch.tensor(tokens[-count:])
    total = float(logits.gather(1, last[:, None]).sum())
    return LogProbability(total, bool((logits.argmax(-1) == last).all()))


def encode(text: str, **options: Any) -> list[int]:
    from transformers import AutoTokenizer

    return list(AutoTokenizer.from_pretrained(tiny_checkpoint())(text, **options)["input_ids"])


def close(found: Any, expected: LogProbability) -> bool:
    return bool(abs(found.total - expected.total) < 1e-4 and found.greedy == expected.greedy)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mamba"])
def test_a_likelihood_equals_one_forward_pass(kind: str) -> None:
    found = ask(tiny_checkpoint(kind), [likelihood("the sky is", " blue"), likelihood("", "the")])
    whole = encode("the sky is blue")
    assert close(value(found[0]), compute_expected(kind, whole, len(whole) - len(encode("the sky is"))))
    assert close(value(found[1]), compute_expected(kind, encode("the"), len(encode("the")) - 1))


def test_a_greedy_continuation_is_reported_as_greedy() -> None:
    text = value(ask(tiny_checkpoint(), [generate("the sky", max_gen_toks=2)])[0])
    assert text == " sat the"  # NumPy generates the weights, so they are the same everywhere
    found = ask(tiny_checkpoint(), [likelihood("the sky", one) for one in (text, " sat", " sat on", " blue")])
    assert [value(one).greedy for one in found] == [True, True, False, False]


def test_a_long_text_is_scored_in_windows() -> None:
    text = "the sky is blue and the answer is what the cat sat on " * 8
    tokens = encode(text)
    (found,) = ask(tiny_checkpoint(), [rolling(text)], max_length=32)
    total, done = 0.0, 0
    while done < len(tokens):
        end = min(done + 32, len(tokens))
        inputs = [0, *tokens[:end]] if done == 0 else tokens[max(end - 33, 0) : end]
        total += compute_expected("llama", inputs, end - done).total
        done = end
    assert len(tokens) > 64
    assert value(found).total == pytest.approx(total, abs=1e-3)


def test_an_empty_text_has_log_probability_zero() -> None:
    assert value(ask(tiny_checkpoint(bos=False), [rolling("")])[0]) == LogProbability(0.0, True)


def test_a_long_context_is_truncated_on_the_left() -> None:
    (found,) = ask(tiny_checkpoint(), [likelihood("the sky is " * 30, "blue")], max_length=20)
    count = len(encode(" blue", add_special_tokens=False))
    assert close(value(found), compute_expected("llama", encode("the sky is " * 30 + "blue")[-21:], count))


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_truncated_tokens_are_counted_and_predicted(kind: str) -> None:
    text = "the sky is " * 30
    requests: list[Request] = [
        likelihood(text, "blue"),
        generate(text, max_gen_toks=8),
        likelihood("the sky is", " blue"),
        generate("the sky is", max_gen_toks=8),
        rolling(text),
    ]
    if kind == "t5":
        requests.pop()
    usages = [
        one.usage for one in ask(tiny_checkpoint(kind), requests, max_length=32) if isinstance(one, Response)
    ]
    assert len(usages) == len(requests)
    counts = [one.truncated_tokens for one in usages if one is not None]
    assert counts[0] > 0 and counts[1] > 0
    assert not any(counts[2:])
    model = HfModel(pretrained=str(tiny_checkpoint(kind)), max_length=32)
    expected = [model.preview_truncation(request) for request in requests]
    assert [0 if one is None else one.truncated_tokens for one in expected] == counts
    assert expected[1] is not None and usages[1] is not None
    assert expected[1].tokens == usages[1].input_tokens
    assert [model.count_input_tokens(request) for request in requests[:4]] == [
        one.input_tokens for one in usages[:4] if one is not None
    ]
    assert model.count_input_tokens(rolling(text)) is None
    assert 0 < len(expected[1].text) < len(text)


def test_short_prompts_are_predicted_without_a_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.models.hf.loading.tokenizer import CheckpointTokenizer

    monkeypatch.delattr(CheckpointTokenizer, "render_request")
    model = HfModel(pretrained=str(tiny_checkpoint()), max_length=200)
    assert model.preview_truncation(generate("the sky is", max_gen_toks=8)) is None
    assert model.preview_truncation(likelihood("the sky is", " blue")) is None


def test_an_unanswerable_request_is_a_failure() -> None:
    requests: list[Request] = [
        likelihood("a", ""),
        likelihood("a", "blue " * 40),
        generate("a", max_gen_toks=20),
        likelihood("a", " b"),
    ]
    outcomes = ask(tiny_checkpoint(), requests, max_length=20)
    messages = [one.message if isinstance(one, Failure) else "" for one in outcomes]
    assert "nothing to score" in messages[0]
    assert "the context length is 20" in messages[1]
    assert "no room for the prompt" in messages[2]
    assert isinstance(outcomes[3], Response)


def test_an_encoder_decoder_model_encodes_context_and_continuation_separately() -> None:
    from transformers import AutoModelForSeq2SeqLM

    folder = tiny_checkpoint("t5")
    requests = [likelihood("the sky is", " blue"), likelihood("the sky is", " what a"), likelihood("", " a")]
    found = ask(folder, requests)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    for outcome, context, text in zip(
        found, ("the sky is", "the sky is", ""), (" blue", " what a", " a"), strict=True
    ):
        labels = torch.tensor([encode(text, add_special_tokens=False)])
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([encode(context) or [0]]), labels=labels).logits[0]
        total = float(logits.log_softmax(-1).gather(1, labels[0][:, None]).sum())
        assert value(outcome).total == pytest.approx(total, abs=1e-4)


def test_a_conversation_uses_the_chat_template() -> None:
    model = HfModel(pretrained=str(tiny_checkpoint()))
    asked = generate(chat(("system", "be brief"), ("user", "hi")))
    assert model.preview(asked) == "<s>[system]be brief</s>\n[user]hi</s>\n[assistant]"
    begun = generate(chat(("user", "hi"), ("assistant", "Well,")))
    assert model.preview(begun) == "<s>[user]hi</s>\n[assistant]Well,"
    empty = generate(chat(("user", "hi"), ("assistant", "")))
    assert model.preview(empty) == "<s>[user]hi</s>\n[assistant]"


def test_the_start_token_of_a_template_is_not_duplicated() -> None:
    (found,) = ask(tiny_checkpoint(), [generate(chat(("user", "hi")), max_gen_toks=1)])
    assert isinstance(found, Response) and found.usage is not None
    assert found.usage.input_tokens == len(encode("[user]hi</s>\n[assistant]"))


def test_a_template_can_be_a_file_text_or_name(tmp_path: Path) -> None:
    file = tmp_path / "short.jinja"
    file.write_text("{% for m in messages %}{{ m['content'] }}{{ extra }}{% endfor %}")
    asked = generate(chat(("user", "hi")))
    arguments: dict[str, Any] = {"chat_template_args": {"extra": "!"}}
    assert (
        HfModel(pretrained=str(tiny_checkpoint()), chat_template=str(file), **arguments).preview(asked)
        == "hi!"
    )
    written = HfModel(pretrained=str(tiny_checkpoint()), chat_template="{{ messages[0]['role'] }}")
    assert written.preview(asked) == "user"
    with pytest.raises(InvalidOption, match="chat template not found: `rag`"):
        HfModel(pretrained=str(tiny_checkpoint()), chat_template="rag").preview(asked)


def test_a_template_that_rejects_system_messages_gets_none(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no') }}{% endif %}"
        "{{ m['content'] }}{% endfor %}"
    )
    model = HfModel(pretrained=str(tiny_checkpoint()), chat_template=template)
    assert model.preview(generate(chat(("system", "be brief"), ("user", "hi")))) == "hi"


def test_reasoning_is_separated_from_the_answer() -> None:
    whole = value(ask(tiny_checkpoint(), [generate("on sky")])[0])
    mark = "(j"
    (found,) = ask(tiny_checkpoint(), [generate("on sky")], think_end_token=mark)
    assert isinstance(found, Response)
    assert found.value == whole.split(mark)[-1].lstrip()
    assert found.reasoning == whole.rpartition(mark)[0]


@pytest.mark.parametrize(
    ("text", "value", "reasoning"),
    [
        ("the sky</think>blue is what", "blue ", "the sky"),
        ("the sky is", "", "the sky is"),  # the reasoning does not end
    ],
)
def test_the_chat_template_tells_where_reasoning_ends(text: str, value: str, reasoning: str) -> None:
    from assay.models.hf.arguments import parse_arguments
    from assay.models.hf.loading.checkpoint import Checkpoint
    from assay.models.hf.loading.tokenizer import CheckpointTokenizer
    from assay.models.hf.sampling import SamplingSettings
    from assay.models.hf.text.jobs import GenerationJob, decode_answer

    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}[assistant]<think>\n"
    arguments = parse_arguments({"pretrained": str(tiny_checkpoint()), "chat_template": template})
    tokenizer = CheckpointTokenizer(arguments, Checkpoint(str(tiny_checkpoint())))
    prompt = chat(("user", "hi"))
    splitter = tokenizer.make_splitter(prompt, tokenizer.render_prompt(prompt))
    assert splitter.is_open
    job = GenerationJob([], [], SamplingSettings(), 9, ("is",), splitter)
    found = decode_answer(encode(text, add_special_tokens=False), job, tokenizer, None)
    assert (found.answer, found.reasoning) == (value, reasoning)
    assert not tokenizer.make_splitter(Prompt.of_text("hi"), "hi").is_active


def test_a_thinking_budget_ends_the_reasoning_and_the_answer_follows() -> None:
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}<think>"
    prompt = chat(("user", "on sky"))
    requests = [
        generate(prompt),
        generate(prompt, thinking_budget=5),
        generate(prompt, thinking_budget=5, repeat=1),
    ]
    whole, short, again = ask(tiny_checkpoint(), requests, chat_template=template)
    assert isinstance(whole, Response) and isinstance(short, Response) and isinstance(again, Response)
    assert (whole.value, whole.finish) == ("", "length")
    assert whole.reasoning is not None and short.reasoning is not None
    assert whole.reasoning.startswith(short.reasoning)
    assert short.value and short.value == again.value
    assert short.usage is not None and short.usage.output_tokens > 12


def test_the_chat_template_gets_the_reasoning_effort() -> None:
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}[{{ reasoning_effort }}]"
    model = HfModel(pretrained=str(tiny_checkpoint()), chat_template=template)
    assert model.preview(generate(chat(("user", "hi")), reasoning_effort="high")) == "hi[high]"


def test_stop_strings_do_not_end_the_reasoning() -> None:
    (found,) = ask(tiny_checkpoint(), [generate("on sky", until=["l"])], think_end_token="(j")
    assert isinstance(found, Response) and found.reasoning is not None
    assert "l" in found.reasoning
    assert ask(tiny_checkpoint(), [generate("on sky", until=["l"])])[0].value == " b"  # type: ignore[union-attr]


def test_abilities_come_from_the_small_files(tmp_path: Path) -> None:
    folder = tmp_path / "silent"
    shutil.copytree(tiny_checkpoint(), folder)
    for path in folder.glob("chat_template*"):
        path.unlink()
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": None}))
    (folder / "model.safetensors").unlink()
    assert HfModel(pretrained=str(folder)).traits.abilities == {"generate", "likelihood", "rolling"}
    thinking = HfModel(pretrained=str(tiny_checkpoint()), enable_thinking=True, think_end_token="</think>")
    assert thinking.traits.abilities == {"generate", "rolling", "chat"}
    (found,) = ask(tiny_checkpoint(), [likelihood("a", " b")], model=thinking)
    assert isinstance(found, Failure) and "enable_thinking" in found.message


def test_media_are_a_failure_for_text_models() -> None:
    picture = Image(digest="d", load=lambda: None)
    (found,) = ask(tiny_checkpoint(), [generate(Prompt((Message("user", (picture,)),)))])
    assert isinstance(found, Failure) and "does not support image" in found.message


def identity(**arguments: Any) -> dict[str, str]:
    return dict(asyncio.run(HfModel(**{"pretrained": str(tiny_checkpoint()), **arguments}).identify()))


def test_the_identity_changes_only_with_what_changes_answers() -> None:
    plain = identity()
    assert plain["dtype"] == "float32"
    assert identity(batch_size=7, device="cpu", trust_remote_code=True, work_once=False) == plain
    for change in (
        {"dtype": "bfloat16"},
        {"max_length": 100},
        {"add_bos_token": False},
        {"chat_template": "{{ x }}"},
    ):
        assert identity(**change) != plain
    assert identity(pretrained=str(tiny_checkpoint("gpt2")))["weights_sha256"] != plain["weights_sha256"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"dtype": "float33"}, InvalidOption, "not a supported torch dtype"),
        ({"device": "cuda:99"}, InvalidOption, "device `cuda:99` is not available"),
        ({"config.no_such_key": 1}, InvalidOption, "no key `no_such_key`"),
        ({"peft": "somewhere"}, UserError, "cannot load `somewhere`|needs the package `peft`"),
        ({"tokenizer": "./nowhere"}, DatasetError, "cannot load"),
    ],
)
def test_loading_errors_are_explained(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ask(tiny_checkpoint(), [generate("a")], **arguments)


def test_invalid_weights_are_an_error(tmp_path: Path) -> None:
    shutil.copytree(tiny_checkpoint(), tmp_path / "broken")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(DatasetError, match="cannot load"):
        ask(tmp_path / "broken", [generate("a")])


def test_deltas_are_added(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_checkpoint())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    model.save_pretrained(tmp_path)
    request = likelihood("the sky", " is")
    plain = value(ask(tiny_checkpoint(), [request])[0])
    assert close(value(ask(tiny_checkpoint(), [request], delta=str(tmp_path))[0]), plain)
    model = AutoModelForCausalLM.from_pretrained(tiny_checkpoint())
    model.save_pretrained(tmp_path)  # the delta doubles the weights
    assert not close(value(ask(tiny_checkpoint(), [request], delta=str(tmp_path))[0]), plain)


@pytest.mark.filterwarnings(
    "ignore:.*is_gradient_checkpointing.* is deprecated:FutureWarning"
)  # peft 0.21 reads it
def test_adapters_are_applied(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    settings = peft.LoraConfig(
        r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
    )
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_checkpoint()), settings).eval()
    model.save_pretrained(tmp_path)
    tokens = encode("the sky is")
    with torch.inference_mode():
        total = float(model(torch.tensor([tokens[:-1]])).logits[0, -1].log_softmax(-1)[tokens[-1]])
    (found,) = ask(tiny_checkpoint(), [likelihood("the sky", " is")], peft=str(tmp_path))
    assert value(found).total == pytest.approx(total, abs=1e-4)
    assert identity(peft=str(tmp_path)) != identity()


def test_half_precision_is_close_to_full_precision() -> None:
    requests = [likelihood("the sky", " is"), likelihood("the sky", " was")]
    full = [value(one) for one in ask(tiny_checkpoint(), requests)]
    half = [value(one) for one in ask(tiny_checkpoint(), requests, dtype="bfloat16")]
    assert all(abs(one.total - other.total) < 1.5 for one, other in zip(full, half, strict=True))
    assert full != half


def test_every_name_creates_the_model() -> None:
    for name in ("hf", "hf-auto", "huggingface"):
        made = make_model(name, {"pretrained": str(tiny_checkpoint())}, batch_size=2, device="cpu")
        assert isinstance(made, HfModel)


def test_the_idle_share_is_measured() -> None:
    model = HfModel(pretrained=str(tiny_checkpoint()))
    assert model.idle_share == 0
    ask(tiny_checkpoint(), [generate("a")], model=model)
    assert 0 < model.idle_share < 1


def test_a_vision_checkpoint_uses_the_multimodal_backend(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llava", "vision_config": {}}))
    try:
        abilities = HfModel(pretrained=str(tmp_path)).traits.abilities
    except UnsupportedRequest:
        return
    assert "image" in abilities


@pytest.mark.parametrize("work_once", [True, False])
def test_an_abandoned_window_stops_generation(work_once: bool) -> None:
    """Ctrl-C does not wait for a long answer."""
    model = HfModel(pretrained=str(tiny_checkpoint(max_position_embeddings=1 << 20)), work_once=work_once)
    endless = generate("on sky", max_gen_toks=200_000, until=[])

    async def leave() -> None:
        await model.open()
        outcomes = model.answer([endless])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(aiter(outcomes)), 0.5)
        await outcomes.aclose()  # type: ignore[attr-defined]
        await asyncio.wait_for(model.close(), 30)

    asyncio.run(leave())
