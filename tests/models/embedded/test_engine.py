from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from assay.models.embedded.engine import EmbeddedEngine, InvalidPrompt, PromptImage, TokenPrompt
from assay.models.embedded.sampling import TokenSampler, make_generator

STORY = "Once upon a time, there was a kind girl named Mia. She had a red ball. "


def ask(engine: EmbeddedEngine, text: str, *pictures: PromptImage) -> TokenPrompt:
    return TokenPrompt(engine.encode(text), pictures)


def test_it_adds_numbers(engine: EmbeddedEngine) -> None:
    right = 0
    for first, second in [(12, 30), (45, 27), (58, 64), (70, 19), (33, 33), (86, 47)]:
        generated = engine.generate(ask(engine, f"{first} + {second} ="), stop=["\n"])
        right += generated.text.strip() == str(first + second)
    assert right >= 5


def test_it_recognizes_colors(engine: EmbeddedEngine, red_square: Image.Image) -> None:
    prompt = ask(
        engine, "<image>\nQuestion: What color is the shape?\nAnswer:", PromptImage("red", lambda: red_square)
    )
    assert engine.generate(prompt, stop=["\n"]).text == " red"


def test_it_generates_an_end_token(engine: EmbeddedEngine) -> None:
    generated = engine.generate(ask(engine, "<s><|user|>Copy the word stone.</s><|assistant|>"))
    assert generated.finish == "stop"
    assert generated.generated_tokens < 10


def test_a_stop_string_over_several_tokens_is_removed(engine: EmbeddedEngine) -> None:
    prompt = ask(engine, STORY)
    whole = engine.generate(prompt, max_tokens=60).text
    stop = whole[20:25]
    generated = engine.generate(prompt, stop=[stop, "never there"], max_tokens=60)
    assert generated.text == whole[: whole.index(stop)]
    assert generated.finish == "stop"


def test_the_earliest_of_several_stop_strings_wins(engine: EmbeddedEngine) -> None:
    prompt = ask(engine, STORY)
    whole = engine.generate(prompt, max_tokens=40).text
    generated = engine.generate(prompt, stop=[whole[30:33], whole[10:14], ""], max_tokens=40)
    assert generated.text == whole[: whole.index(whole[10:14])]


@pytest.mark.parametrize("limit", [0, 1, 7])
def test_the_token_limit_holds(engine: EmbeddedEngine, limit: int) -> None:
    generated = engine.generate(ask(engine, STORY), max_tokens=limit)
    assert (generated.finish, len(generated.text), generated.generated_tokens) == ("length", limit, limit)


def test_a_prompt_longer_than_the_context_is_truncated_on_the_left(engine: EmbeddedEngine) -> None:
    generated = engine.generate(ask(engine, STORY * 20), max_tokens=5)
    assert generated.prompt_tokens == engine.context - 5
    assert generated.text == engine.generate(ask(engine, "x" + STORY * 20), max_tokens=5).text


def test_truncation_that_removes_an_image_is_an_error(engine: EmbeddedEngine, noise: Image.Image) -> None:
    with pytest.raises(InvalidPrompt, match="would remove an image"):
        engine.generate(ask(engine, "<image>" + STORY * 20, PromptImage("n", lambda: noise)), max_tokens=5)


@pytest.mark.parametrize("marks", [0, 2])
def test_placeholders_and_images_must_match(engine: EmbeddedEngine, noise: Image.Image, marks: int) -> None:
    with pytest.raises(InvalidPrompt, match="1 images"):
        engine.generate(ask(engine, "<image>" * marks + "?", PromptImage("n", lambda: noise)))


def test_likelihoods_of_all_next_tokens_sum_to_one(engine: EmbeddedEngine) -> None:
    prompt = ask(engine, STORY)
    log_probabilities = [
        np.exp(engine.compute_log_likelihood(prompt, [token])[0]) for token in range(len(engine.tokenizer))
    ]
    assert sum(log_probabilities) == pytest.approx(1.0, abs=1e-9)


def test_only_the_greedy_continuation_is_reported_as_greedy(engine: EmbeddedEngine) -> None:
    prompt = ask(engine, STORY)
    text = engine.generate(prompt, max_tokens=20).text
    assert engine.compute_log_likelihood(prompt, engine.tokenizer.encode(text))[1] is True
    assert engine.compute_log_likelihood(prompt, engine.tokenizer.encode(text[:-1] + "#"))[1] is False


def test_an_empty_continuation_has_log_probability_zero(engine: EmbeddedEngine) -> None:
    assert engine.compute_log_likelihood(ask(engine, "x"), []) == (0.0, True)


def test_a_continuation_longer_than_the_context_is_an_error(engine: EmbeddedEngine) -> None:
    with pytest.raises(InvalidPrompt, match="continuation"):
        engine.compute_log_likelihood(ask(engine, "x"), [20] * (engine.context + 1))


def test_a_rolling_likelihood_includes_the_start_token(
    engine: EmbeddedEngine,
) -> None:
    start = engine.encode("")
    expected = engine.compute_log_likelihood(TokenPrompt(start), engine.encode(STORY))[0]
    assert engine.compute_rolling_log_likelihood(STORY) == expected
    assert (
        engine.compute_rolling_log_likelihood("")
        == engine.compute_log_likelihood(TokenPrompt(start), start)[0]
        < 0
    )


def test_long_texts_are_scored_in_windows_with_each_token_once(engine: EmbeddedEngine) -> None:
    text = STORY * 32
    ids, size = engine.encode(text), engine.context
    assert 2 * size < len(ids) < 3 * size
    expected = (
        engine.compute_log_likelihood(TokenPrompt(engine.encode("")), ids[:size])[0]
        + engine.compute_log_likelihood(TokenPrompt([ids[size - 1]]), ids[size : 2 * size])[0]
        + engine.compute_log_likelihood(TokenPrompt(ids[len(ids) - size - 1 : 2 * size]), ids[2 * size :])[0]
    )
    assert engine.compute_rolling_log_likelihood(text) == expected


def test_results_do_not_depend_on_order_or_history(
    engine: EmbeddedEngine, noise: Image.Image, red_square: Image.Image
) -> None:
    questions = [
        ask(engine, "Question: What is 12 + 30?\nAnswer:"),
        ask(engine, "<image>\nWhat is in the picture?", PromptImage("noise", lambda: noise)),
        ask(engine, "<image>\nWhat is in the picture?", PromptImage("red", lambda: red_square)),
        ask(engine, STORY * 9),
    ]
    continuations = [engine.tokenizer.encode(text) for text in (" 42", " a red square", "x", " " + STORY)]

    def all_values(order: list[int], *, forget: bool) -> dict[tuple[int, int], float]:
        values = {}
        for question in order:
            for number in order:
                if forget:
                    engine.clear_caches()
                values[question, number] = engine.compute_log_likelihood(
                    questions[question], continuations[number]
                )[0]
            engine.generate(questions[question], max_tokens=number + 3)
        return values

    first = all_values([0, 1, 2, 3], forget=True)
    assert all_values([3, 1, 0, 2], forget=False) == first
    assert all_values([2, 3, 1, 0], forget=True) == first


def test_sampling_depends_on_its_generator_alone(engine: EmbeddedEngine) -> None:
    prompt = ask(engine, STORY)
    sampler = TokenSampler(temperature=1.5, top_p=0.95)

    def sample(repeat: int) -> str:
        return engine.generate(
            prompt, max_tokens=40, sampler=sampler, generator=make_generator(0, "p", repeat)
        ).text

    forwards = [sample(repeat) for repeat in range(4)]
    backwards = [sample(repeat) for repeat in reversed(range(4))]
    assert forwards == backwards[::-1]
    assert len(set(forwards)) == 4


BITS = """
import sys
from pathlib import Path
import numpy as np
from PIL import Image
from assay.models.embedded.engine import EmbeddedEngine, PromptImage, TokenPrompt

engine = EmbeddedEngine(Path(sys.argv[1]))
random = np.random.default_rng(0)
image = Image.fromarray(random.integers(0, 255, (40, 32, 3), dtype=np.uint8))
picture = PromptImage("x", lambda: image)
for length in (1, 3, 17, 32, 60, 130, 256, 300, 511, 700, 1000):
    ids = [1, *map(int, random.integers(8, 100, length))]
    for continuation in ([33], [50] * 17):
        print(engine.compute_log_likelihood(TokenPrompt(ids), continuation)[0].hex())
print(engine.compute_log_likelihood(TokenPrompt([1, 4, *[40] * 20], (picture,)), [50] * 9)[0].hex())
print(engine.generate(TokenPrompt([1, 50, 60]), max_tokens=300).text)
last = engine.generate(TokenPrompt([1, *[70, 71, 72] * 320]), max_tokens=60, log_probabilities=True).tokens
print(*(value.hex() for _, value in last))
"""


def test_bits_do_not_depend_on_the_number_of_threads(folder: Path) -> None:
    source = Path(sys.modules["assay"].__file__ or "").parents[1]

    def run(threads: str) -> str:
        setting = {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        environment = {**os.environ, **setting, "PYTHONPATH": str(source)}
        command = [sys.executable, "-c", BITS, str(folder)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    alone = run("1")
    assert alone.count("\n") > 18
    assert run("1") == alone
    assert run("2") == alone
    assert run("8") == alone
