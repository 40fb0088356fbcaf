"""What is asked about a document: request by request what lm-evaluation-harness sends."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from PIL import Image as Pictures

from assay.core.errors import AssayError, DatasetError, TaskError
from assay.core.records.messages import Image, Text
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.tasks.data.rows import Rows
from assay.tasks.task import Task

MakeTask = Callable[..., Task]

TRAIN = [{"q": f"T{number}", "a": f"R{number}"} for number in range(8)]
CHOICE_ROWS = [{"q": f"Q{number}", "options": ["x", "y", "z"], "a": number % 3} for number in range(4)]
CHOICE: dict[str, Any] = {"output_type": "multiple_choice", "doc_to_choice": "options"}


def render_all(task: Task) -> list[tuple[Request, ...]]:
    return [requests for _, requests in task.render()]


def pairs(requests: Iterable[Request]) -> list[tuple[str, str]]:
    return [
        (request.prompt.text, request.continuation) for request in requests if isinstance(request, Likelihood)
    ]


def context(task: Task, document: int = 0) -> str:
    return render_all(task)[document][0].prompt.text


def messages(task: Task) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in render_all(task)[0][0].prompt.messages]


# --- generate_until --------------------------------------------------------------------------------


def test_generation_asks_the_context_with_the_settings(make_task: MakeTask) -> None:
    task = make_task(doc_to_text="Q: {{q}}\nA:", generation_kwargs={"until": ["\n"], "max_gen_toks": 5})
    [request] = render_all(task)[1]
    assert isinstance(request, Generate)
    assert (request.task, request.document, request.index, request.repeat) == ("sums", 1, 0, 0)
    assert (request.prompt.text, request.prompt.chat) == ("Q: Q1\nA:", False)
    assert dict(request.settings.values) == {"until": ["\n"], "max_gen_toks": 5}


def test_repeats_are_numbered_and_share_their_prompt(make_task: MakeTask) -> None:
    requests = render_all(make_task(repeats=3))[0]
    assert [request.repeat for request in requests] == [0, 1, 2]
    assert len({id(request.prompt) for request in requests}) == 1
    assert len({request.id for request in requests}) == 3


@pytest.mark.parametrize(
    ("by_model", "user", "expected"),
    [
        (None, {}, {"until": ["x"], "top_p": 1}),
        ({"m": {"top_p": 0.5}}, {}, {"until": ["x"], "top_p": 0.5}),
        ({"other": {"top_p": 0.5}}, {}, {"until": ["x"], "top_p": 1}),
        ({"default": {"top_k": 3}}, {}, {"until": ["x"], "top_p": 1, "top_k": 3}),
        ({"m": {"top_p": 0.5}}, {"top_p": 0.1, "seed": 1}, {"until": ["x"], "top_p": 0.1, "seed": 1}),
        (None, {"until": ["y"]}, {"until": ["y"], "top_p": 1}),
    ],
)
def test_the_users_settings_win_over_the_models_over_the_tasks(
    make_task: MakeTask, by_model: Any, user: Any, expected: dict[str, Any]
) -> None:
    task = make_task(
        generation_kwargs={"until": ["x"], "top_p": 1},
        model_specific_generation_kwargs=by_model,
        rendering={"gen_kwargs": user, "model_name": "m"},
    )
    assert dict(task.settings.values) == expected


# --- likelihoods -----------------------------------------------------------------------------------


def test_loglikelihood_asks_context_and_target_without_a_delimiter(make_task: MakeTask) -> None:
    task = make_task(output_type="loglikelihood", doc_to_target=" {{a}}", target_delimiter="###")
    [request] = render_all(task)[2]
    assert isinstance(request, Likelihood)
    assert (request.prompt.text, request.continuation) == ("Q2", " A2")


def test_rolling_asks_the_target_alone(make_task: MakeTask) -> None:
    task = make_task(
        output_type="loglikelihood_rolling", doc_to_text="", num_fewshot=2, description="Never shown.",
        rendering={"system_instruction": "Nor this."},
    )  # fmt: skip
    [request] = render_all(task)[2]
    assert isinstance(request, RollingLikelihood)
    assert request.prompt.text == "A2"


@pytest.mark.parametrize("output_type", ["loglikelihood", "loglikelihood_rolling"])
def test_a_target_that_is_not_text_is_refused(make_task: MakeTask, output_type: str) -> None:
    with pytest.raises(TaskError, match="`doc_to_target` must return text"):
        render_all(make_task([{"q": "x", "a": 5}], output_type=output_type))


def test_multiple_choice_asks_every_choice_after_the_delimiter(make_task: MakeTask) -> None:
    requests = render_all(make_task(CHOICE_ROWS, **CHOICE))[1]
    assert pairs(requests) == [("Q1", " x"), ("Q1", " y"), ("Q1", " z")]
    assert [request.index for request in requests] == [0, 1, 2]
    assert len({id(request.prompt) for request in requests}) == 1


@pytest.mark.parametrize(
    "choices",
    [["x", "y", "z"], {"A": "x", "B": "y", "C": "z"}, "{{options}}", lambda fields: fields["options"]],
    ids=["a list", "a mapping", "a template", "a function"],
)
def test_choices_may_be_given_in_many_ways(make_task: MakeTask, choices: Any) -> None:
    task = make_task(CHOICE_ROWS, output_type="multiple_choice", doc_to_choice=choices, target_delimiter="|")
    assert pairs(render_all(task)[0]) == [("Q0", "|x"), ("Q0", "|y"), ("Q0", "|z")]


def test_mutual_information_asks_the_choices_without_context_as_well(make_task: MakeTask) -> None:
    task = make_task(CHOICE_ROWS, **CHOICE, metric_list=[{"metric": "acc"}, {"metric": "acc_mutual_info"}])
    requests = render_all(task)[0]
    assert pairs(requests) == [("Q0", " x"), ("Q0", " y"), ("Q0", " z"), ("", " x"), ("", " y"), ("", " z")]
    assert [request.index for request in requests] == [0, 1, 2, 3, 4, 5]


MULTIPLE_INPUT = {
    "output_type": "multiple_choice",
    "doc_to_text": "a",
    "doc_to_choice": "{{[q ~ ' one', q ~ ' two']}}",
    "doc_to_target": "is it",
}


def test_where_the_text_is_an_index_the_choices_are_the_inputs(make_task: MakeTask) -> None:
    task = make_task(CHOICE_ROWS, **MULTIPLE_INPUT)
    assert pairs(render_all(task)[0]) == [("Q0 one", " is it"), ("Q0 two", " is it")]
    assert task.shape == (2, False)


def test_examples_of_multiple_inputs_show_the_right_input(make_task: MakeTask) -> None:
    task = make_task(
        splits={"test": CHOICE_ROWS[:2], "train": [{"q": "T0", "options": [], "a": 1}]},
        **MULTIPLE_INPUT, num_fewshot=1, fewshot_split="train",
    )  # fmt: skip
    assert pairs(render_all(task)[0]) == [
        ("T0 two is it\n\nQ0 one", " is it"),
        ("T0 two is it\n\nQ0 two", " is it"),
    ]


def test_mutual_information_with_multiple_inputs(make_task: MakeTask) -> None:
    task = make_task(CHOICE_ROWS, **MULTIPLE_INPUT, metric_list=[{"metric": "acc_mutual_info"}])
    assert pairs(render_all(task)[0])[2:] == [("", " Q0 one"), ("", " Q0 two")]


def test_an_open_prefix_with_multiple_inputs_needs_no_delimiter(make_task: MakeTask) -> None:
    task = make_task(CHOICE_ROWS, **MULTIPLE_INPUT, gen_prefix="P")
    assert pairs(render_all(task)[0])[0] == ("Q0 oneP", " is it")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("options", True),
        ("a", False),
        ("{{options}}", True),
        ("{{options[0]}}", False),
        ("{{options[9:]}}", False),
    ],
)
def test_whether_targets_are_lists_is_seen_in_the_first_document(
    make_task: MakeTask, target: str, expected: bool
) -> None:
    assert make_task(CHOICE_ROWS, doc_to_target=target).shape == (0, expected)


@pytest.mark.parametrize("choices", [None, []])
def test_a_document_without_choices_is_refused(make_task: MakeTask, choices: Any) -> None:
    rows = [*CHOICE_ROWS[:1], {"q": "Q", "options": choices, "a": 0}]
    with pytest.raises(AssayError):
        render_all(make_task(rows, **CHOICE))


# --- the prompt ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "system", "expected"),
    [
        ({}, None, "Q0"),
        ({"description": "About {{q}}: "}, None, "About Q0: Q0"),
        ({"description": "plain\n\n"}, None, "plain\n\nQ0"),
        ({"description": "a"}, None, "A0Q0"),
        ({}, "Be brief.", "Be brief.Q0"),
        ({"description": "Sums."}, "Be brief.", "Be brief.\n\nSums.Q0"),
        ({"description": "Sums."}, "Be brief.\n", "Be brief.\nSums.Q0"),
        ({"description": " Sums."}, "Be brief.", "Be brief. Sums.Q0"),
        ({"description": "Sums.", "fewshot_delimiter": "|"}, "Be brief.", "Be brief.|Sums.Q0"),
        ({"gen_prefix": "A:"}, None, "Q0 A:"),
        ({"gen_prefix": "A:", "target_delimiter": "\n"}, None, "Q0\nA:"),
        ({"gen_prefix": " A:"}, None, "Q0 A:"),
        ({"gen_prefix": "A:", "doc_to_text": "{{q}} "}, None, "Q0 A:"),
        ({"gen_prefix": "A:", "doc_to_text": ""}, None, "A:"),
        ({"gen_prefix": "a"}, None, "Q0 A0"),
        ({"gen_prefix": "<{{a}}>"}, None, "Q0 <A0>"),
    ],
)
def test_description_system_instruction_and_prefix_are_joined_as_lm_eval_does(
    make_task: MakeTask, config: dict[str, Any], system: str | None, expected: str
) -> None:
    assert context(make_task(**config, rendering={"system_instruction": system})) == expected


FEWSHOT = {"splits": {"train": TRAIN}, "fewshot_split": "train", "fewshot_config": {"sampler": "first_n"}}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, "T0 R0\n\nT1 R1\n\nQ0"),
        ({"target_delimiter": "=>", "fewshot_delimiter": "|"}, "T0=>R0|T1=>R1|Q0"),
        ({"description": "D."}, "D.T0 R0\n\nT1 R1\n\nQ0"),
        ({"gen_prefix": "P:"}, "T0 P: R0\n\nT1 P: R1\n\nQ0 P:"),
        ({"gen_prefix": "P: "}, "T0 P: R0\n\nT1 P: R1\n\nQ0 P: "),
        ({"fewshot_config": {"sampler": "first_n", "doc_to_target": ""}}, "T0T1Q0"),
        ({"fewshot_config": {"sampler": "first_n", "doc_to_text": "<{{q}}>"}}, "<T0> R0\n\n<T1> R1\n\nQ0"),
        ({"fewshot_config": {"sampler": "first_n", "doc_to_target": "{{a}}!"}}, "T0 R0!\n\nT1 R1!\n\nQ0"),
        ({"fewshot_config": {"sampler": "first_n", "target_delimiter": "->"}}, "T0->R0\n\nT1->R1\n\nQ0"),
        ({"fewshot_config": {"sampler": "first_n", "fewshot_delimiter": "|"}}, "T0 R0|T1 R1|Q0"),
        ({"fewshot_config": {"sampler": "first_n", "gen_prefix": "P:"}}, "T0 P: R0\n\nT1 P: R1\n\nQ0"),
        ({"doc_to_target": "['{{a}}', 'x']"}, "T0 R0\n\nT1 R1\n\nQ0"),
    ],
)
def test_examples_stand_before_the_question(
    make_task: MakeTask, config: dict[str, Any], expected: str
) -> None:
    assert context(make_task(**{**FEWSHOT, **config}, num_fewshot=2)) == expected


def test_the_answer_of_a_multiple_choice_example_is_the_text_of_its_choice(make_task: MakeTask) -> None:
    task = make_task(
        splits={"test": CHOICE_ROWS, "train": CHOICE_ROWS[1:3]},
        **CHOICE, fewshot_split="train", num_fewshot=2, fewshot_config={"sampler": "first_n"},
    )  # fmt: skip
    assert context(task) == "Q1 y\n\nQ2 z\n\nQ0"


def test_examples_may_be_written_into_the_task(make_task: MakeTask) -> None:
    samples = [{"q": "S0", "a": "s0"}, {"q": "S1", "a": "s1"}]
    for given in (samples, lambda: samples):
        task = make_task(num_fewshot=2, fewshot_config={"sampler": "first_n", "samples": given})
        assert context(task) == "S0 s0\n\nS1 s1\n\nQ0"


@pytest.mark.parametrize(
    ("config", "first"),
    [
        ({"fewshot_split": "train", "fewshot_config": {"samples": [{"q": "S", "a": "s"}]}}, "T0"),
        ({"fewshot_config": {"split": "train"}, "fewshot_split": "dev"}, "T0"),
        ({"fewshot_config": {"samples": [{"q": "S", "a": "s"}]}, "training_split": "train"}, "S"),
        ({"training_split": "train", "validation_split": "dev"}, "T0"),
        ({"validation_split": "dev"}, "D0"),
        ({}, "Q0"),
    ],
)
def test_the_pool_is_the_split_then_the_samples_then_training_validation_test(
    make_task: MakeTask, config: dict[str, Any], first: str
) -> None:
    dev = [{"q": f"D{number}", "a": "d"} for number in range(8)]
    own = {"sampler": "first_n", **config.pop("fewshot_config", {})}
    task = make_task(splits={"train": TRAIN, "dev": dev}, num_fewshot=1, fewshot_config=own, **config)
    assert task.fewshot_pool[0]["q"] == first


def test_process_docs_reaches_the_pool_unless_the_examples_have_their_own(make_task: MakeTask) -> None:
    def mark(sign: str) -> Any:
        return lambda rows: Rows({**row, "q": row["q"] + sign} for row in rows)

    shared = make_task(**FEWSHOT, num_fewshot=1, process_docs=mark("!"))
    assert context(shared) == "T0! R0\n\nQ0!"
    own = {**FEWSHOT, "fewshot_config": {"sampler": "first_n", "process_docs": mark("?")}}
    assert context(make_task(**own, num_fewshot=1, process_docs=mark("!"))) == "T0? R0\n\nQ0!"


def list_examples(task: Task) -> list[list[str]]:
    return [requests[0].prompt.text.split("\n\n")[:-1] for requests in render_all(task)]


def test_examples_are_drawn_by_one_generator_in_document_order(make_task: MakeTask) -> None:
    task = make_task(
        splits={"train": TRAIN}, fewshot_split="train", num_fewshot=3, rendering={"fewshot_seed": 42}
    )
    generator = random.Random(42)
    expected = [[f"{row['q']} {row['a']}" for row in generator.sample(TRAIN, 3)] for _ in range(6)]
    assert list_examples(task) == expected


def test_a_document_is_never_its_own_example(make_task: MakeTask) -> None:
    task = make_task(fewshot_split="test", num_fewshot=4)
    generator, rows = random.Random(1234), list(task.rows)
    expected = []
    for row in rows:
        kept = [other for other in generator.sample(rows, 5) if other != row][:4]
        expected.append([f"{other['q']} {other['a']}" for other in kept])
    assert list_examples(task) == expected


def test_first_n_leaves_the_document_out_where_the_pool_is_its_split(make_task: MakeTask) -> None:
    task = make_task(fewshot_split="test", num_fewshot=2, fewshot_config={"sampler": "first_n"})
    assert list_examples(task)[:3] == [["Q1 A1", "Q2 A2"], ["Q0 A0", "Q2 A2"], ["Q0 A0", "Q1 A1"]]


def test_with_a_limit_the_first_documents_get_the_same_examples(make_task: MakeTask) -> None:
    config = {"splits": {"train": TRAIN}, "fewshot_split": "train", "num_fewshot": 2}
    assert (
        list_examples(make_task(**config, rendering={"limit": 3})) == list_examples(make_task(**config))[:3]
    )


@pytest.mark.parametrize(
    ("own", "asked", "expected"),
    [(None, None, 0), (3, None, 3), (None, 2, 2), (3, 2, 2), (0, 2, 0), (3, 0, 0), (0, None, 0)],
)
def test_num_fewshot_of_the_user_wins_except_over_a_zero(
    make_task: MakeTask, own: int | None, asked: int | None, expected: int
) -> None:
    config = {} if own is None else {"num_fewshot": own}
    task = make_task(**FEWSHOT, **config, rendering={"num_fewshot": asked})
    assert task.num_fewshot == expected
    assert len(list_examples(task)[0]) == expected


@pytest.mark.parametrize(
    ("config", "kind", "message"),
    [
        ({"num_fewshot": 9, "fewshot_split": "train"}, TaskError, "the task needs 9 few-shot examples"),
        ({"num_fewshot": 1, "fewshot_split": "gone"}, DatasetError, "no split `gone`"),
        ({"num_fewshot": 1, "fewshot_config": {"samples": []}}, TaskError, "the pool has 0"),
        ({"num_fewshot": 1, "fewshot_config": {"sampler": "balanced"}}, TaskError, "`balanced`"),
        ({"num_fewshot": 1, "fewshot_config": {"sampler": lambda: 1}}, TaskError, "must be a name"),
        ({"num_fewshot": 1, "doc_to_target": "{{missing}}"}, TaskError, "uses `missing`"),
        ({"doc_to_text": "{{missing}}"}, TaskError, "uses `missing`"),
        ({"doc_to_text": 5}, TaskError, "`doc_to_text` must return text here"),
    ],
)
def test_what_cannot_be_rendered_says_why(
    make_task: MakeTask, config: dict[str, Any], kind: type[AssayError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        render_all(make_task(splits={"train": TRAIN}, **config))


# --- chat ------------------------------------------------------------------------------------------


def test_a_chat_has_a_message_per_turn_without_delimiters(make_task: MakeTask) -> None:
    task = make_task(
        **FEWSHOT, num_fewshot=1, description="D.", gen_prefix="P:",
        rendering={"chat": True, "multiturn": True, "system_instruction": "S."},
    )  # fmt: skip
    assert messages(task) == [
        ("system", "S.\n\nD."),
        ("user", "T0"),
        ("assistant", "P: R0"),
        ("user", "Q0"),
        ("assistant", "P:"),
    ]
    prompt = render_all(task)[0][0].prompt
    assert (prompt.chat, prompt.continues) == (True, True)


def test_a_single_turn_chat_collapses_the_examples(make_task: MakeTask) -> None:
    task = make_task(
        **FEWSHOT, num_fewshot=1, gen_prefix="P:", rendering={"chat": True, "system_instruction": "S."}
    )
    assert messages(task) == [("system", "S."), ("user", "T0 P: R0\n\nQ0"), ("assistant", "P:")]


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [(None, "x"), ("P:", "|x"), ("P: ", "x"), ("P:\n", "x"), ("", "x"), ("{{q}}", "|x")],
)
def test_in_a_chat_a_choice_follows_the_delimiter_only_after_an_open_prefix(
    make_task: MakeTask, prefix: str | None, expected: str
) -> None:
    config = {**CHOICE, "target_delimiter": "|", "gen_prefix": prefix}
    task = make_task(
        CHOICE_ROWS, **config, metric_list=[{"metric": "acc_mutual_info"}], rendering={"chat": True}
    )
    requests = pairs(render_all(task)[0])
    assert requests[0][1] == requests[3][1] == expected


def test_multiple_inputs_in_a_chat(make_task: MakeTask) -> None:
    task = make_task(CHOICE_ROWS, **MULTIPLE_INPUT, rendering={"chat": True, "multiturn": True})
    assert pairs(render_all(task)[0]) == [("Q0 one", "is it"), ("Q0 two", "is it")]
    assert all(request.prompt.chat for request in render_all(task)[0])


# --- media of lm-eval ------------------------------------------------------------------------------


def parts(task: Task) -> list[str]:
    message = render_all(task)[0][0].prompt.messages[-1]
    return [part.text if isinstance(part, Text) else type(part).__name__ for part in message.parts]


@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        ("What?", 1, ["Image", "What?"]),
        ("<image>What?", 1, ["Image", "What?"]),
        ("See <image> and <image>.", 2, ["See ", "Image", " and ", "Image", "."]),
        ("See <image>", 2, ["See ", "Image", "Image"]),
        ("A <image> B <image>", 1, ["A ", "Image", " B ", "<image>"]),
    ],
)
def test_pictures_stand_where_the_text_says(
    make_task: MakeTask, text: str, count: int, expected: list[str]
) -> None:
    picture = Pictures.new("RGB", (2, 2))
    assert parts(make_task(doc_to_text=text, doc_to_image=lambda fields: [picture] * count)) == expected


def test_a_single_picture_need_not_be_a_list_and_missing_ones_are_left_out(make_task: MakeTask) -> None:
    picture = Pictures.new("RGB", (2, 2))
    assert parts(make_task(doc_to_image=lambda fields: picture)) == ["Image", "Q0"]
    assert parts(make_task(doc_to_image=[lambda fields: picture, lambda fields: None])) == ["Image", "Q0"]
    assert parts(make_task(doc_to_audio=lambda fields: {"array": [0.0]})) == ["Audio", "Q0"]


def test_every_choice_sees_the_picture(make_task: MakeTask) -> None:
    picture = Pictures.new("RGB", (2, 2))
    requests = render_all(make_task(CHOICE_ROWS, **CHOICE, doc_to_image=lambda fields: picture))[0]
    assert [[type(media) for media in request.prompt.media] for request in requests] == [[Image]] * 3


# --- passes ----------------------------------------------------------------------------------------


def ids(requests: Iterable[Request]) -> list[str]:
    return [request.id for request in requests]


def test_every_pass_gives_the_same_requests(make_task: MakeTask) -> None:
    task = make_task(splits={"train": TRAIN}, fewshot_split="train", num_fewshot=3, repeats=2)
    first, second = render_all(task), render_all(task)
    assert [ids(requests) for requests in first] == [ids(requests) for requests in second]
    assert len({name for requests in first for name in ids(requests)}) == 12


@pytest.mark.parametrize("split", ["train", "test"])
def test_skipping_a_document_keeps_the_sampler_in_step(make_task: MakeTask, split: str) -> None:
    task = make_task(splits={"train": TRAIN}, fewshot_split=split, num_fewshot=3)
    whole = render_all(task)
    rendering = task.start_pass()
    for document, expected in zip(task.documents(), whole, strict=True):
        if document.index in (1, 2, 4):
            rendering.skip(document)
        else:
            assert ids(rendering.render_requests(document)) == ids(expected)


def test_a_helper_that_scribbles_on_the_document_does_no_harm(make_task: MakeTask) -> None:
    def scribble(fields: dict[str, Any]) -> str:
        fields["options"].append("mine")
        fields["q"] = fields["q"] + "!"
        return str(fields["q"])

    task = make_task(CHOICE_ROWS, **CHOICE, doc_to_text=scribble)
    first, second = render_all(task), render_all(task)
    assert [ids(requests) for requests in first] == [ids(requests) for requests in second]
    assert [document.fields for document in task.documents()] == CHOICE_ROWS


def test_metadata_of_the_run_reach_the_dataset(make_task: MakeTask) -> None:
    def made(**given: Any) -> dict[str, Any]:
        return {"test": [{"q": str(given["length"]), "a": ""}]}

    task = make_task(
        custom_dataset=made, metadata={"length": 1}, dataset_kwargs={}, rendering={"metadata": {"length": 2}}
    )
    assert context(task) == "2"


def test_targets_depend_on_the_model_where_the_task_says_so(make_task: MakeTask) -> None:
    config = {
        "doc_to_target": lambda fields, keywords: fields["a"] + keywords["end"],
        "model_specific_target_kwargs": {"m": {"end": "!"}, "default": {"end": "."}},
    }
    for model, expected in (("m", "A0!"), ("other", "A0.")):
        task = make_task(**config, rendering={"model_name": model})
        assert task.target(task.rows[0]) == expected
