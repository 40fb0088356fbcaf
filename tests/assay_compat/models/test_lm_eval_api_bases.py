"""`TemplateAPI` without the package of lm-eval: payloads, batches, retries. Payloads of a whole run were compared with those of
lm_eval 0.4.13 (docs/coming-from/lm-eval.md)."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.assay_compat.models.api_server import Server
from tests.making import write_task

import assay
from assay_compat.models.lm_eval_api_bases import JsonChatStr, TemplateAPI
from assay_compat.shims.lm_eval.api.instance import Instance

GUIDE_CLASS = """
from lm_eval.api.registry import register_model
from lm_eval.models.api_models import TemplateAPI


@register_model("my-api")
class MyAPIModel(TemplateAPI):
    def _create_payload(self, messages, generate=False, gen_kwargs=None, seed=1234, eos=None, **kwargs):
        return {"prompt": messages, "max_tokens": gen_kwargs["max_gen_toks"], "seed": seed}

    @staticmethod
    def parse_logprobs(outputs, tokens=None, ctxlens=None, **kwargs):
        return []

    @staticmethod
    def parse_generations(outputs, **kwargs):
        return [choice["text"] for choice in outputs["choices"]]
"""


class Characters:
    """A tokenizer with one token for each character."""

    eos_token_id, bos_token_id, eos_token = 0, None, "<end>"

    def __call__(self, text: str, **options: Any) -> Any:
        return SimpleNamespace(input_ids=[ord(character) for character in text])

    def batch_decode(self, tokens: list[list[int]]) -> list[str]:
        return ["".join(map(chr, one)) for one in tokens]


class Api(TemplateAPI):
    """Sends what it gets."""

    api_key = "secret"

    def _load_tokenizer(self, name: str | None, **options: Any) -> Any:
        return None if self.tokenizer_backend is None else Characters()

    def _create_payload(self, messages: Any, **options: Any) -> dict[str, Any]:
        name = "messages" if isinstance(messages, list) and isinstance(messages[0], dict) else "prompt"
        return {name: messages, **options}

    @staticmethod
    def parse_logprobs(outputs: Any, tokens: Any = None, ctxlens: Any = None, **kwargs: Any) -> Any:
        (found,) = outputs
        return [
            (sum(choice["values"][length:]), length == 1)
            for choice, length in zip(found["choices"], ctxlens, strict=True)
        ]

    @staticmethod
    def parse_generations(outputs: Any, **kwargs: Any) -> Any:
        return [choice["text"] for choice in outputs["choices"]]


def make_requests(kind: str, *arguments: tuple[Any, ...]) -> list[Instance]:
    return [
        Instance(request_type=kind, doc={}, arguments=one, idx=0, metadata=("t", index, 1))
        for index, one in enumerate(arguments)
    ]


@pytest.mark.parametrize("num_concurrent", [1, 3])
def test_texts_are_generated_in_batches_with_equal_settings(server: Server, num_concurrent: int) -> None:
    model = Api(
        "m",
        base_url=server.url,
        tokenizer_backend=None,
        batch_size=2,
        num_concurrent=num_concurrent,
        eos_string="</s>",
    )
    short, long = {"until": ["\n"]}, {"until": ["\n"], "max_gen_toks": 3}
    arguments = [("a one", short), ("bbbb two", short), ("cc three", long), ("ddd four", short)]
    assert model.generate_until(make_requests("generate_until", *arguments)) == [
        "one",
        "two",
        "three",
        "four",
    ]
    sent = sorted((body["prompt"], body["gen_kwargs"]) for _, body in server.received)
    assert sent == [(["a one"], short), (["bbbb two", "ddd four"], short), (["cc three"], long)]
    assert {name for name, _ in server.received} == {"Bearer secret"}
    assert [body.get("eos") for _, body in server.received] == (
        ["</s>"] if num_concurrent == 1 else [None]
    ) * 3


def test_token_prompts_are_cut_to_the_length_that_remains(server: Server) -> None:
    model = Api("m", base_url=server.url, max_length=11)
    requests = make_requests("generate_until", ("0123456789", {"max_gen_toks": 4}))
    assert model.generate_until(requests) == ["6"]
    assert server.received[0][1]["prompt"] == [[ord(one) for one in "456789"]]


def test_log_likelihoods_know_the_length_of_the_context(server: Server) -> None:
    model = Api("m", base_url=server.url, batch_size=2, max_length=8)
    requests = make_requests("loglikelihood", ("ab", "c"), ("", "xyz"), ("0123456", "789"))
    assert model.loglikelihood(requests) == [(-1.0, False), (-3.0, True), (-3.0, False)]
    longest = server.received[0][1]["prompt"]
    assert longest == [[ord(one) for one in "3456789"], [0, *map(ord, "xyz")]]


def test_rolling_log_likelihoods_score_every_token_once(server: Server) -> None:
    model = Api("m", base_url=server.url, max_length=6)
    assert model.loglikelihood_rolling(make_requests("loglikelihood_rolling", ("0123456789",))) == [-10.0]


def test_tokens_are_decoded_for_a_server_that_takes_text(server: Server) -> None:
    model = Api("m", base_url=server.url, tokenized_requests=False)
    assert model.create_message([[97, 98]]) == "ab"
    assert model.tokenized_requests is False


def test_chats_are_sent_as_messages(server: Server) -> None:
    model = Api("m", base_url=server.url, tokenizer_backend=None)
    chat = model.apply_chat_template([{"role": "user", "content": "Hi"}])
    assert isinstance(chat, JsonChatStr)
    model.model_call([chat])
    assert server.received[0][1]["messages"] == [{"role": "user", "content": "Hi"}]


def test_server_errors_are_tried_again_and_refusals_are_not(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []
    monkeypatch.setattr(time, "sleep", delays.append)
    model = Api("m", base_url=server.url, tokenizer_backend=None)
    requests = make_requests("generate_until", ("say one", {}))
    server.failures = [(500, "broken"), (429, "later")]
    assert model.generate_until(requests) == ["one"]
    assert delays == [1.0, 2.0]
    server.failures = [(400, "bad prompt")]
    with pytest.raises(RuntimeError, match="HTTP status 400: bad prompt"):
        model.generate_until(requests)
    server.failures = [(500, "broken")] * 3
    with pytest.raises(RuntimeError, match="HTTP status 500: broken"):
        model.generate_until(requests)
    assert len(server.received) == 7


def test_class_of_the_guide_runs_by_name(server: Server, workspace: Path) -> None:
    (workspace / "my_models.py").write_text(GUIDE_CLASS)
    (workspace / "q.jsonl").write_text(
        '{"question": "Say yes", "answer": "yes"}\n{"question": "Say no", "answer": "no"}\n'
    )
    write_task(
        workspace, "said", doc_to_text="{{question}}", doc_to_target="{{answer}}",
        dataset_kwargs={"data_files": {"test": "q.jsonl"}}, generation_kwargs={"max_gen_toks": 5, "until": ["\n"]},
    )  # fmt: skip
    run = assay.run(
        model="my-api", model_args=f"model=m,base_url={server.url},tokenizer_backend=None", tasks=["said"],
        include_path=["my_models.py", "."],
    )  # fmt: skip
    assert [estimate.value for estimate in run.estimates] == [1.0]
    assert [body["max_tokens"] for _, body in server.received] == [5, 5]
    run.close()
