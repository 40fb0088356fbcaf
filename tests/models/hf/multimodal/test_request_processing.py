"""Errors fail only their own request, and batches shrink when memory runs out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.models.hf.multimodal.media_requests import (
    ask,
    chat,
    choices,
    picture,
    plain,
    sound,
    values,
    video,
    write,
)
from tests.models.hf.multimodal.tiny_multimodal import tiny

from assay.core.errors import MissingPackage
from assay.core.records.messages import Audio, Image, Message, Prompt, Text
from assay.core.records.requests import Request, RollingLikelihood
from assay.core.records.responses import Failure, LogProbability, Response
from assay.models.hf import HfModel
from assay.models.hf.multimodal.batches import Batch
from assay.models.hf.multimodal.engine import MultimodalEngine
from assay.models.hf.preset_models import make_preset_class

pytestmark = pytest.mark.torch


def make_model(**arguments: Any) -> HfModel:
    return HfModel(pretrained=str(tiny("qwen2_5_vl")), **arguments)


def broken() -> Any:
    raise OSError("cut off")


def test_an_unreadable_medium_fails_only_its_requests() -> None:
    bad = Image(digest="bad", load=broken, source="bad.png")
    requests: list[Request] = [
        write(chat(picture(1), "What?")),
        write(chat(bad, "What?"), 1),
        *choices(chat(bad, "So"), " a"),
    ]
    fine, *failed = ask(make_model(batch_size=4), requests)
    assert isinstance(fine, Response)
    for outcome in failed:
        assert isinstance(outcome, Failure) and outcome.kind == "bad media" and "cut off" in outcome.message


def test_an_unsupported_medium_is_a_failure_with_a_reason() -> None:
    [outcome] = ask(make_model(), [write(chat(sound(1), "What?"))])
    assert isinstance(outcome, Failure) and outcome.kind == "bad media"
    assert outcome.message == "the checkpoint supports image, video, not audio"


def test_an_image_that_the_processor_rejects_fails_only_its_request() -> None:
    thin = picture(9, width=4000, height=4)
    outcomes = ask(
        make_model(batch_size=3), [write(chat(one, "?"), at) for at, one in enumerate((picture(1), thin))]
    )
    assert isinstance(outcomes[0], Response)
    assert isinstance(outcomes[1], Failure) and "aspect ratio" in outcomes[1].message


def test_a_prompt_with_media_that_does_not_fit_is_a_failure() -> None:
    requests = [write(chat(picture(1), "word " * 40)), write(chat("word " * 40))]
    outcomes = ask(make_model(max_length=100), requests)
    assert isinstance(outcomes[0], Failure) and "the context length is 100" in outcomes[0].message
    assert isinstance(outcomes[1], Response)  # a text is truncated on the left
    assert outcomes[1].usage is not None and outcomes[1].usage.input_tokens <= 94
    assert outcomes[1].usage.truncated_tokens > 0


class SmallMemory:
    """Makes the engine run out of memory with more than `max_rows` rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, max_rows: int) -> None:
        self.sizes: list[int] = []
        original_generate, original_score = MultimodalEngine.generate, MultimodalEngine.score

        def check(batch: Batch) -> None:
            self.sizes.append(len(batch.lengths))
            if len(batch.lengths) > max_rows:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")

        def generate(engine: MultimodalEngine, batch: Batch, *others: Any, **arguments: Any) -> Any:
            check(batch)
            return original_generate(engine, batch, *others, **arguments)

        def score(engine: MultimodalEngine, batch: Batch, *others: Any, **arguments: Any) -> Any:
            check(batch)
            return original_score(engine, batch, *others, **arguments)

        monkeypatch.setattr(MultimodalEngine, "generate", generate)
        monkeypatch.setattr(MultimodalEngine, "score", score)


def test_a_batch_that_is_too_large_is_halved_without_losing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [write(chat(picture(at), "What?"), at) for at in range(7)]
    before = values(ask(make_model(), requests))
    memory = SmallMemory(monkeypatch, 2)
    assert values(ask(make_model(batch_size=6), requests)) == before
    assert max(memory.sizes) == 6 and memory.sizes[-1] <= 2


def test_fewer_choices_are_scored_at_once_when_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = choices(chat(picture(1), "Pick:"), *(f" choice {at}" for at in range(9)))
    before = [value.total for value in values(ask(make_model(), requests))]
    tried: list[int] = []
    original = MultimodalEngine.compute_continuations

    def compute_continuations(
        engine: MultimodalEngine, batch: Batch, rows: Sequence[Any], *others: Any
    ) -> Any:
        tried.append(len(rows))
        if len(rows) > 3:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return original(engine, batch, rows, *others)

    monkeypatch.setattr(MultimodalEngine, "compute_continuations", compute_continuations)
    after = [value.total for value in values(ask(make_model(), requests))]
    assert after == pytest.approx(before, abs=1e-4) and max(tried) > 3


def test_one_request_that_is_too_large_alone_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    SmallMemory(monkeypatch, 0)
    outcomes = ask(make_model(batch_size=2), [write(chat(picture(at), "What?"), at) for at in range(2)])
    assert [outcome.kind for outcome in outcomes if isinstance(outcome, Failure)] == ["out of memory"] * 2


def test_the_choices_of_an_image_share_one_prefill(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(batch_size=2)
    read: list[int] = []
    original = MultimodalEngine.prefill

    def count_prefill(engine: MultimodalEngine, batch: Batch, **arguments: Any) -> Any:
        read.append(len(batch.lengths))
        return original(engine, batch, **arguments)

    monkeypatch.setattr(MultimodalEngine, "prefill", count_prefill)
    prompts = [chat(picture(at, 60, 60), "Pick one:") for at in range(4)]
    texts = (" a", " red one", " b c", " d")
    requests = [one for at, prompt in enumerate(prompts) for one in choices(prompt, *texts, document=at)]
    values(ask(model, requests))
    assert sum(read) == 4 + 1  # four prompts, and the first once more for the prefix sharing check


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "gemma3", "qwen2_audio"])
def test_shared_prompts_score_like_unshared_ones(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    medium = sound(1) if kind == "qwen2_audio" else picture(1, 60, 60)
    prompts = [chat(medium, "Pick one:"), chat("Pick one of these:"), plain(medium, "It is")]
    requests = [
        one for at, prompt in enumerate(prompts) for one in choices(prompt, " a", " red one", document=at)
    ]
    shared = values(ask(HfModel(pretrained=str(tiny(kind)), batch_size=3), requests))
    monkeypatch.setattr(MultimodalEngine, "check_prefix_sharing", lambda *others: False)
    whole = values(ask(HfModel(pretrained=str(tiny(kind)), batch_size=3), requests))
    for one, other in zip(shared, whole, strict=True):
        assert one.total == pytest.approx(other.total, abs=1e-4)


def test_a_checkpoint_without_prefix_sharing_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = choices(chat(picture(1), "Pick:"), " red one", " b c")
    before = values(ask(make_model(), requests))

    def score_wrongly(
        engine: MultimodalEngine, batch: Batch, continuations: Sequence[Any], max_rows: int
    ) -> Any:
        return [[LogProbability(-1.0) for _ in some] for some in continuations]

    monkeypatch.setattr(MultimodalEngine, "score_shared", score_wrongly)
    totals = [value.total for value in values(ask(make_model(), requests))]
    assert totals == pytest.approx([value.total for value in before], abs=1e-4)


def test_sampled_repeats_differ_and_are_reproducible() -> None:
    settings: dict[str, Any] = {"do_sample": True, "temperature": 1.5, "max_gen_toks": 8}
    requests = [write(chat(picture(1), "What?"), repeat=repeat, **settings) for repeat in range(4)]
    first = values(ask(make_model(batch_size=4), requests))
    assert len(set(first)) > 1
    assert values(ask(make_model(batch_size=1), requests)) == first
    assert values(ask(make_model(batch_size=4, seed=7), requests)) != first


def test_greedy_repeats_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SmallMemory(monkeypatch, 9)
    outcomes = ask(make_model(batch_size=4), [write(chat(picture(1), "?"), repeat=at) for at in range(3)])
    assert len(set(values(outcomes))) == 1 and memory.sizes == [1]


def test_an_answer_ends_before_its_stop_string() -> None:
    request = write(chat(picture(1), "What?"), max_gen_toks=12)
    [whole] = values(ask(make_model(), [request]))
    stop = next(letter for letter in whole if letter not in "\ufffd" and whole.index(letter))
    [outcome] = ask(make_model(), [write(chat(picture(1), "What?"), max_gen_toks=12, until=[stop])])
    assert isinstance(outcome, Response) and outcome.finish == "stop"
    assert outcome.value == whole.partition(stop)[0]


def test_an_old_version_of_transformers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    monkeypatch.setattr(transformers, "__version__", "4.57.1")
    with pytest.raises(MissingPackage, match=r"need transformers 5 or later; 4\.57\.1 is installed"):
        make_model().preview(write(chat("Hi")))


def test_presets_ignore_the_default_stop_string_of_lmms_eval() -> None:
    kind = make_preset_class("qwen2_5_vl")
    assert kind.preset.ignored_stops == {"\n\n"} and not HfModel.preset.ignored_stops


def test_without_a_cache_the_answers_are_the_same() -> None:
    requests = [write(chat(picture(1), "What?")), write(chat(video(1), "What?"))]
    assert values(ask(make_model(use_cache=False), requests)) == values(ask(make_model(), requests))


def test_a_rolling_text_is_scored_in_windows() -> None:
    text = "The cat sat on the mat and looked at the moon."
    request = RollingLikelihood(task="t", document=0, prompt=Prompt.of_text(text))
    long, short = (values(ask(make_model(max_length=size), [request]))[0].total for size in (400, 16))
    assert long < 0 and short < 0 and long != short


def test_reasoning_is_separated_from_the_answer() -> None:
    request = write(chat(picture(1), "What?"), max_gen_toks=12)
    [whole] = values(ask(make_model(), [request]))
    mark = next(letter for letter in whole[1:-1] if letter.isprintable() and letter not in "\ufffd0123456789")
    [outcome] = ask(make_model(think_end_token=mark), [request])
    assert isinstance(outcome, Response)
    assert (outcome.reasoning, outcome.value) == (
        whole.rpartition(mark)[0],
        whole.rpartition(mark)[2].lstrip(),
    )


def test_the_chat_template_tells_where_reasoning_ends() -> None:
    request = write(chat("What?"), max_gen_toks=12, until=[])
    [unfinished, plain] = ask(
        make_model(chat_template=f"{make_model().preview(request)}{{{{ '<think>' }}}}"),
        [request, write(Prompt.of_text("What?"), 1, max_gen_toks=12, until=[])],
    )
    assert isinstance(unfinished, Response) and isinstance(plain, Response)
    assert (unfinished.value, unfinished.finish) == ("", "length")
    assert unfinished.reasoning and plain.value and plain.reasoning is None
    assert unfinished.usage is not None and unfinished.usage.reasoning_tokens > 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_thinking_budget_ends_the_reasoning_and_the_answer_follows(temperature: float) -> None:
    sampling: dict[str, Any] = {"temperature": temperature, "do_sample": temperature > 0, "until": []}
    words = "{% for m in messages %}{% for c in m.content %}{{ c.text if c.type == 'text' else '<|vision_start|><|image_pad|><|vision_end|>' }}{% endfor %}{% endfor %}"
    model = make_model(chat_template=f"{words}{{{{ '<think>' }}}}")
    budget: dict[str, Any] = {"thinking_budget": 5}
    asked = [
        write(prompt, at, max_gen_toks=tokens, **more, **sampling)
        for at, (prompt, tokens, more) in enumerate(
            [
                (chat("What?"), 24, {}),
                (chat("What?"), 6, budget),
                (chat("Who is it?"), 6, budget),
                (chat(picture(1), "What?"), 6, budget),
                (Prompt.of_text("What?"), 6, budget),
            ]
        )
    ]
    whole, short, other, pictured, plain = ask(model, asked)
    assert isinstance(whole, Response) and (whole.value, whole.finish) == ("", "length")
    for found in (short, other, pictured):
        assert isinstance(found, Response) and found.reasoning is not None
        assert found.value and found.finish in ("length", "stop")
        assert found.usage is not None and found.usage.output_tokens > 6
    assert isinstance(short, Response) and whole.reasoning is not None and short.reasoning is not None
    assert whole.reasoning.startswith(short.reasoning.rstrip("\ufffd"))
    assert isinstance(plain, Response) and plain.reasoning is None
    assert plain.usage is not None and plain.usage.output_tokens <= 6


def test_the_chat_template_gets_the_reasoning_effort() -> None:
    model = make_model(chat_template="{{ messages[0]['role'] }}[{{ reasoning_effort }}]")
    assert model.preview(write(chat("What?"), reasoning_effort="high")) == "user[high]"
    assert model.preview(write(chat("What?"))) == "user[]"


def test_a_started_answer_continues_after_the_template() -> None:
    said = (Message("user", (picture(1), Text("What?"))), Message("assistant", (Text("It is"),)))
    assert make_model().preview(write(Prompt(said, chat=True))).endswith("<|im_start|>assistant\nIt is")


def test_audio_clips_are_transcribed_one_by_one() -> None:
    long = sound(3, samples=80_000)  # five seconds, transcribed in chunks of two seconds
    requests: list[Request] = [
        write(chat(sound(1), "?"), 0, max_gen_toks=5),
        write(chat(long, "?"), 1, max_gen_toks=5),
        write(chat("no sound"), 2, max_gen_toks=5),
        write(chat(Audio(digest="bad", load=broken), "?"), 3, max_gen_toks=5),
        *choices(chat(sound(1), "?"), " a"),
    ]
    model = make_preset_class("whisper")(pretrained=str(tiny("whisper")), batch_size=2)
    short, longer, *failed = ask(model, requests)
    assert isinstance(short, Response) and isinstance(longer, Response)
    assert short.usage is not None and longer.usage is not None
    assert longer.usage.output_tokens > 2 * short.usage.output_tokens
    assert [outcome.kind for outcome in failed if isinstance(outcome, Failure)] == [
        "bad request",
        "bad media",
        "bad request",
    ]
