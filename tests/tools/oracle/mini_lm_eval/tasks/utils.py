"""Helpers of the mini tasks; they import the harness's names as published tasks do."""

from lm_eval.api.metrics import mean, metric_max_over_ground_truths
from lm_eval.utils import general_detokenize


def process_docs(dataset):
    return dataset.filter(lambda doc: doc["keep"]).map(
        lambda doc: {"target": general_detokenize(doc["words"])}
    )


def question(doc):
    return f"Write: {doc['target']}\n"


def judge(doc, results):
    given = results[0].split()
    wanted = [doc["target"].split(), doc["words"].split()]
    shared = metric_max_over_ground_truths(lambda one, other: len(set(one) & set(other)), given, wanted)
    return {"shared": (shared, len(given)), "length": len(given)}


def weighted(items):
    return mean([shared / max(1, length) for shared, length in items])
