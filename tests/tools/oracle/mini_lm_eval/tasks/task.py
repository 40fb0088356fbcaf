"""A task written as a class: one question asked twice, freely and as a likelihood."""

from functools import partial

from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask


def share(key, items):
    return sum(item[key] for item in items) / len(items)


class Reading(ConfigurableTask):
    VERSION = 4
    DATASET_PATH = "mini/reading"
    DATASET_NAME = None

    def __init__(self, config=None):
        super().__init__(config={"metadata": {"version": self.VERSION}})

    def has_training_docs(self):
        return False

    def has_validation_docs(self):
        return True

    def has_test_docs(self):
        return False

    def validation_docs(self):
        return self.dataset["validation"]

    def doc_to_text(self, doc):
        return f"{doc['passage']}\n\nQuestion: {doc['question']}\nAnswer:"

    def doc_to_target(self, doc):
        return " " + doc["answer"]

    def construct_requests(self, doc, ctx, chat_template=None, apply_chat_template=False, **kwargs):
        return [
            Instance("generate_until", doc, (ctx, {"until": ["\n"]}), 0, **kwargs),
            Instance("loglikelihood", doc, (ctx, " unanswerable"), 0, **kwargs),
        ]

    def process_results(self, doc, results):
        text, (logprob, _) = results
        evidence = {"right": doc["answer"] in text, "doubt": logprob > -10}
        return {"right": evidence, "doubt": evidence}

    def aggregation(self):
        return {"right": partial(share, "right"), "doubt": partial(share, "doubt")}

    def higher_is_better(self):
        return {"right": True, "doubt": False}
