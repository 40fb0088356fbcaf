"""Model classes of lmms-eval as Assay models."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from PIL import Image as Pictures

from assay.core.records.documents import Document
from assay.core.records.messages import Audio, Image, Message, Prompt, Text, Video
from assay.core.records.requests import Generate, Likelihood, Request, Settings
from assay.core.records.responses import LogProbability, Outcome, Response
from assay_compat.models.lmms_eval_bases import lmms
from assay_compat.models.lmms_eval_model import LmmsEvalModel, is_lmms_class

PICTURE = Image(digest="p", load=lambda: Pictures.new("RGB", (2, 3)))
CLIP = Audio(digest="a", load=lambda: ([0.5], 16_000))
FILM = Video(digest="v" * 40, load=lambda: b"film", start_s=1.0)


@dataclass
class Counts:
    input_tokens: int | None = 3
    output_tokens: int | None = 2


@dataclass
class Result:
    text: str
    token_counts: Counts = field(default_factory=Counts)


class Simple(lmms):
    """Answers with the size of the picture; records its arguments."""

    def __init__(self, batch_size: int = 1) -> None:
        super().__init__()
        self.seen: list[tuple[Any, ...]] = []
        self.documents: list[Any] = []
        self.visuals: list[Any] = []

    def generate_until(self, requests: Any) -> list[Any]:
        answers = []
        for request in requests:
            context, settings, doc_to_visual, doc_id, task, split = request.args
            document = self.task_dict[task][split][doc_id]
            self.seen.append((context, settings, doc_id, task, split))
            self.documents.append(dict(document))
            self.visuals.append(doc_to_visual(document))
            answers.append(Result(f"answer {doc_id}"))
            settings["until"] = "changed by the model"
        return answers

    def loglikelihood(self, requests: Any) -> list[tuple[float, bool]]:
        self.seen += [request.args[:2] for request in requests]
        return [(-1.5, True) for _ in requests]

    def generate_until_multi_round(self, requests: Any) -> Any: ...


class Chat(Simple):
    is_simple = False

    def generate_until(self, requests: Any) -> list[Any]:
        for request in requests:
            _, doc_to_messages, _, doc_id, task, split = request.args
            self.seen.append((doc_to_messages(self.task_dict[task][split][doc_id]),))
        return [("text", {"output_tokens": 7}) for _ in requests]


def ask(model: LmmsEvalModel, requests: Sequence[Request]) -> list[Outcome]:
    async def collect() -> list[Outcome]:
        await model.open()
        found = {outcome.request_id: outcome async for outcome in model.answer(requests)}
        await model.close()
        return [found[request.id] for request in requests]

    return asyncio.run(collect())


def generate(*parts: Any, document: int = 0, chat: bool = False, **more: Any) -> Generate:
    prompt = Prompt((Message("user", parts),), chat=chat)
    return Generate(
        task="t", document=document, prompt=prompt, settings=Settings({"max_new_tokens": 4}), **more
    )


def test_simple_model_gets_text_settings_and_doc_to_visual() -> None:
    model = Simple()
    adapter = LmmsEvalModel(model)
    assert "chat" not in adapter.traits.abilities
    adapter.receive_documents("val", [Document(task="t", index=3, fields={"question": "what?"})])
    request = generate(PICTURE, CLIP, FILM, Text("what?"), document=3)
    (outcome,) = ask(adapter, [request])
    assert model.seen == [("what?", {"max_new_tokens": 4, "until": "changed by the model"}, 3, "t", "val")]
    assert model.documents == [{"question": "what?"}]
    picture, clip, film = model.visuals[0]
    assert picture.size == (2, 3) and clip == {"array": [0.5], "sampling_rate": 16_000}
    assert film.endswith(".mp4")
    assert isinstance(outcome, Response) and outcome.value == "answer 3"
    assert outcome.usage is not None and (outcome.usage.input_tokens, outcome.usage.output_tokens) == (3, 2)
    assert "until" not in request.settings.values


def test_chat_model_gets_messages() -> None:
    model = Chat()
    adapter = LmmsEvalModel(model)
    assert "chat" in adapter.traits.abilities
    (outcome,) = ask(adapter, [generate(PICTURE, FILM, Text("what?"), chat=True)])
    (((message,),),) = model.seen
    assert message["role"] == "user"
    picture, film, text = message["content"]
    assert picture["type"] == "image" and film["start_time"] == 1.0 and "end_time" not in film
    assert text == {"type": "text", "text": "what?"}
    assert isinstance(outcome, Response) and outcome.value == "text"
    assert outcome.usage is not None and outcome.usage.output_tokens == 7


def test_rounds_of_one_document_are_asked_in_separate_calls() -> None:
    model = Simple()
    requests = [
        generate(Text("one")),
        generate(Text("two"), round=1),
        generate(Text("one"), repeat=1),
        generate(Text("x"), document=1),
    ]
    assert all(isinstance(outcome, Response) for outcome in ask(LmmsEvalModel(model), requests))
    assert [one[0] for one in model.seen] == ["one", "one", "x", "two"]


def test_likelihoods_get_the_continuation() -> None:
    model = Simple()
    request = Likelihood(task="t", document=0, prompt=Prompt.of_text("q"), continuation=" a")
    (outcome,) = ask(LmmsEvalModel(model), [request])
    assert model.seen == [("q", " a")]
    assert isinstance(outcome, Response) and outcome.value == LogProbability(-1.5, greedy=True)


def test_losses_are_negative_log_probabilities() -> None:
    """The models of lmms-eval return losses: the smallest one is the choice of the model."""

    class Loss(Simple):
        def loglikelihood(self, requests: Any) -> list[tuple[float, bool]]:
            return [(2.5, False) for _ in requests]

    request = Likelihood(task="t", document=0, prompt=Prompt.of_text("q"), continuation=" a")
    (outcome,) = ask(LmmsEvalModel(Loss()), [request])
    assert isinstance(outcome, Response) and outcome.value == LogProbability(-2.5, greedy=False)


def test_window_is_everything_if_the_model_batches() -> None:
    assert LmmsEvalModel(Simple()).traits.window < 1000
    batching = Simple()
    batching.batch_size = 4  # type: ignore[attr-defined]
    assert LmmsEvalModel(batching).traits.window > 1_000_000
    assert LmmsEvalModel(Simple(), requests_per_call=7).traits.window == 7


def test_classes_of_lmms_eval_are_recognised() -> None:
    assert is_lmms_class(Chat) and not is_lmms_class(Result)
    assert Simple()._apply_system_prompt([{"role": "user", "content": "x"}], "Be brief.")[0] == {
        "role": "system",
        "content": "Be brief.",
    }
