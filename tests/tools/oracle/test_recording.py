"""The parts of the recorder that run without a harness: jobs, responses, synthesized documents, merged files, commands."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
import time
import wave
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tools.oracle import comparison
from tools.oracle.compare import compare_corpora
from tools.oracle.corpus import CorpusError, detect_harness, read_records, write_records
from tools.oracle.lm_eval_values import decode_documents, encode_document
from tools.oracle.record import merge_shares
from tools.oracle.recording import job, responses, synthesis
from tools.oracle.recording.documents import DocumentsNotFound, WrittenDocuments, find_repository
from tools.oracle.recording.job import RecordingJob, TaskTimeout, limit_time, match_names
from tools.oracle.recording.responses import (
    MAX_RESPONSES,
    cut_at_stops,
    draw_loglikelihood,
    draw_rolling,
    draw_texts,
)
from tools.oracle.recording.synthesis import Synthesizer, TaskSources, find_sources, infer_schema

PROJECT = Path(__file__).parents[3]
HELPERS = """
def process_docs(dataset):
    def convert(row):
        query = row["query"]
        return {"text": query.strip(), "gold": ["x", "y"].index(row["side"])}
    return dataset.map(convert)

def doc_to_text(doc):
    lines = [option["name"] for option in doc["options"]]
    if doc.get("mode") == "long":
        lines.append(int(doc["size"]))
    return "\\n".join(lines)
"""


@pytest.mark.parametrize("module", [comparison, job, responses, synthesis])
def test_examples_in_docstrings(module: ModuleType) -> None:
    failed, tried = doctest.testmod(module)
    assert tried and not failed


def test_a_job_survives_json() -> None:
    recording = RecordingJob(
        harness="lm_eval", output="corpus", tasks=["a*"], variants=["default", "chat"], limit=3
    )
    assert RecordingJob.from_json(recording.to_json()) == recording


def test_names_match_in_the_order_of_the_patterns() -> None:
    assert match_names(["b*", "a", "b1"], ["a", "b1", "b2", "c"]) == ["b1", "b2", "a"]


def test_a_task_is_stopped_after_its_time_limit() -> None:
    with pytest.raises(TaskTimeout), limit_time(1):
        time.sleep(5)


# --- responses --------------------------------------------------------------------------------------


def test_responses_follow_the_documented_formula() -> None:
    """The formula of the recorded corpora: recorders agree without exchanging responses."""
    record = next(read_records(Path(__file__).parent / "mini_lm_eval", "tasks-*.jsonl*"))
    for records in read_records(Path(__file__).parent / "mini_lm_eval", "tasks-*.jsonl*"):
        for request in records["requests"]:
            recorded = records["responses"][request["key"]][0]
            if request["type"] == "loglikelihood":
                assert draw_loglikelihood(request["key"]) == recorded
            if request["type"] == "loglikelihood_rolling":
                assert draw_rolling(request["key"]) == recorded
    assert record["requests"]


def test_texts_are_deterministic_and_contain_gold_answers_but_no_stop_strings() -> None:
    keys = [f"{number:064x}" for number in range(200)]
    texts = [draw_texts(key, 1, ["blue"], ["\n", "."])[0] for key in keys]
    assert texts == [draw_texts(key, 1, ["blue"], ["\n", "."])[0] for key in keys]
    assert 60 < sum("blue" in text for text in texts) < 160
    assert not any("\n" in text or "." in text for text in texts)
    assert len(draw_texts(keys[0], 64, ["blue"], [])) == MAX_RESPONSES
    assert cut_at_stops("a b", [""]) == "a b"


# --- documents --------------------------------------------------------------------------------------


def test_templates_say_which_fields_a_document_has() -> None:
    template = (
        "{{passage.strip()}} {% for one in parts %}{{one}}{% endfor %} {{answers['text'][0]}} {{label}}"
    )
    schema = infer_schema(TaskSources(templates=[template], field_names=["question", "not a name"]))
    kinds = {name: field.kind for name, field in schema.fields.items()}
    assert kinds == {"passage": "text", "parts": "texts", "answers": "record", "label": "", "question": ""}
    assert schema.fields["answers"].fields["text"].kind == "texts"


def test_helper_files_say_which_fields_a_document_has(tmp_path: Path) -> None:
    (tmp_path / "utils.py").write_text(HELPERS)
    sources = find_sources({"test_split": "test", "doc_to_target": "{{gold}}", "doc_to_text": len}, tmp_path)
    assert sources.splits == ["test"]
    schema = infer_schema(sources)
    assert schema.fields["query"].kind == "text"
    assert schema.fields["side"].constants == ["x", "y"]
    assert schema.fields["mode"].constants == ["long"]
    assert schema.fields["size"].kind == "number"
    (row, *_) = Synthesizer().build_rows("task", sources)
    assert row["side"] in ("x", "y")
    assert all(set(option) == {"name"} for option in row["options"])


def test_answer_choices_are_lists(tmp_path: Path) -> None:
    sources = find_sources({"doc_to_choice": "{{choices.text}}", "doc_to_text": "question"}, tmp_path)
    (row, *_) = Synthesizer().build_rows("task", sources)
    assert len(row["choices"]["text"]) == 4 and isinstance(row["question"], str)


def test_an_answer_is_one_of_the_options_it_is_looked_up_in(tmp_path: Path) -> None:
    (tmp_path / "utils.py").write_text(
        "def doc_to_target(doc):\n    numbers = {'1': 0, '2': 1}\n    return numbers[doc['answer']]\n"
    )
    template = "{{choices.label.index(key)}}"
    sources = TaskSources(templates=[template], helper_files=[tmp_path / "utils.py"])
    for row in Synthesizer().build_rows("task", sources):
        assert row["key"] in row["choices"]["label"]
        assert row["answer"] in ("1", "2")


def test_documents_are_the_same_every_time_and_differ_between_splits() -> None:
    sources = TaskSources(templates=["{{question}}"])
    rows = Synthesizer().build_rows("task", sources, "test")
    assert rows == Synthesizer().build_rows("task", sources, "test")
    assert rows != Synthesizer().build_rows("task", sources, "train")


def test_a_schema_is_repaired_after_errors() -> None:
    synthesizer = Synthesizer()
    sources = TaskSources(templates=["{{question}}"])
    assert not synthesizer.repair("unknown", KeyError("x"))
    synthesizer.build_rows("task", sources)
    assert synthesizer.repair("task", KeyError("hint"))
    assert "hint" in synthesizer.build_rows("task", sources)[0]
    types = set()
    while synthesizer.repair("task", TypeError("unsupported operand")):
        types.add(type(synthesizer.build_rows("task", sources)[0]["question"]))
    assert {str, int, float, bool, list, dict} <= types


def test_a_repository_is_found_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "owner" / "data").mkdir(parents=True)
    assert find_repository(str(tmp_path), "owner/data") == tmp_path / "owner" / "data"
    assert find_repository(str(tmp_path), "data") == tmp_path / "owner" / "data"
    with pytest.raises(DocumentsNotFound):
        find_repository(str(tmp_path), "owner/other")


def test_written_documents_are_found_by_pattern_and_contain_their_media(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "media").mkdir()
    image.new("RGB", (2, 1), (255, 0, 0)).save(tmp_path / "media" / "red.png")
    with wave.open(str(tmp_path / "media" / "beep.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes((16384).to_bytes(2, "little") + (-32768).to_bytes(2, "little", signed=True))
    document = {
        "images": [{"$image": "red.png"}],
        "sound": {"$audio": "beep.wav"},
        "raw": {"$bytes": "beep.wav"},
        "n": 1,
    }
    entries = [{"tasks": ["other", "mvbench_*"], "docs": [document]}]
    (tmp_path / "a.json").write_text(json.dumps(entries))
    written = WrittenDocuments(tmp_path)
    fields = written.read_value(written.find("mvbench_action")["docs"][0])
    assert [one.getpixel((0, 0)) for one in fields["images"]] == [(255, 0, 0)]
    assert fields["sound"] == {"array": [0.5, -1.0], "sampling_rate": 8000, "path": "beep.wav"}
    assert (fields["raw"][:4], fields["n"]) == (b"RIFF", 1)
    with pytest.raises(DocumentsNotFound, match="no written documents for `vqa`"):
        written.find("vqa")


def test_documents_with_images_survive_a_corpus() -> None:
    from PIL import Image

    image = Image.frombytes("RGB", (2, 1), bytes(range(6)))
    (decoded,) = decode_documents([encode_document({"image": image, "values": (1, float("inf"))})])
    assert decoded["image"].tobytes() == image.tobytes()
    assert decoded["values"] == [1, float("inf")]


# --- files ------------------------------------------------------------------------------------------


def make_record(task: str, **fields: Any) -> dict[str, Any]:
    return {
        "task": task,
        "yaml_relpath": f"family/{task}.yaml",
        "variant": "default",
        "output_type": "generate_until",
        "num_fewshot": 0,
        "uses_global_rng": False,
        **fields,
    }


def test_shares_are_merged_and_appended(tmp_path: Path) -> None:
    pytest.importorskip("zstandard")
    shares, corpus = tmp_path / "shares", tmp_path / "corpus"
    shares.mkdir()
    corpus.mkdir()
    write_records(shares / "tasks-00.jsonl.zst", [make_record("a")])
    write_records(shares / "tasks-01.jsonl.zst", [make_record("b")])
    write_records(shares / "groups-00.jsonl.zst", [{"group": "g"}])
    (shares / "skipped-01.csv").write_text("c,KeyError,x\n")
    assert merge_shares(shares, corpus) == (3, 1)
    assert merge_shares(shares, corpus) == (3, 1)
    assert detect_harness(corpus) == "lm_eval"
    assert [record["task"] for record in read_records(corpus, "tasks-*")] == ["a", "b", "a", "b"]
    assert [record["group"] for record in read_records(corpus, "groups.*")] == ["g"]
    assert (corpus / "skipped.csv").read_text().splitlines()[0] == "task,reason,detail"
    assert (corpus / "tasks.csv").read_text().count("family/a.yaml") == 2


def test_corpora_are_compared_field_by_field(tmp_path: Path) -> None:
    for name, records in (
        ("one", [make_record("a", limit=6), make_record("b", limit=6), make_record("c")]),
        ("two", [make_record("a", limit=6, other=1), make_record("b", limit=7)]),
    ):
        (tmp_path / name).mkdir()
        write_records(tmp_path / name / "tasks-00.jsonl", records)
    found = dict(compare_corpora(tmp_path / "one", tmp_path / "two"))
    assert found == {"a#default": None, "b#default": "limit: 6, recorded 7"}
    write_records(tmp_path / "records-00.jsonl", [])
    with pytest.raises(CorpusError):
        list(compare_corpora(tmp_path / "one", tmp_path))


@pytest.mark.parametrize(
    ("module", "arguments", "text"),
    [
        ("record", ["--harness", "other==1", "--tasks", "a", "-o", "{folder}/new"], "is not one of lm_eval"),
        ("record", ["--harness", "lm_eval==0.4.13", "-o", "{folder}/new"], "pass --tasks or --tasks_file"),
        ("record", ["--harness", "lm_eval==0.4.13", "--tasks", "a", "-o", "{project}"], "is not empty"),
        ("compare", ["{folder}", "{folder}"], "no recorded corpus"),
    ],
)
def test_mistakes_are_reported_without_a_traceback(
    tmp_path: Path, module: str, arguments: list[str], text: str
) -> None:
    completed = subprocess.run(
        [
            sys.executable,
            "-m",
            f"tools.oracle.{module}",
            *(argument.format(folder=tmp_path, project=PROJECT) for argument in arguments),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=PROJECT,
    )
    assert completed.returncode != 0
    assert text in completed.stderr and "Traceback" not in completed.stderr
