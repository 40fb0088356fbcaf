"""Helpers of the small corpus: media, keywords of models, guesses, clusters, breakdowns."""

import json
import random
from pathlib import Path

from lmms_eval.filters.extraction import ExtendedRegexFilter

SEEN = []
"""Each function has a module of its own, so this one is empty wherever nothing is put in."""


def visual(doc):
    SEEN.append(doc["id"])
    return [doc["picture"].convert("L"), *doc["more"]]


def text(doc, lmms_eval_specific_kwargs=None):
    post = lmms_eval_specific_kwargs["post"]
    return f"{sorted(doc)} {doc['question']}{post} {len(SEEN)}"


def messages(doc, lmms_eval_specific_kwargs=None):
    content = [{"type": "text", "text": text(doc, lmms_eval_specific_kwargs)}]
    return [
        {"role": "system", "content": [{"type": "text", "text": "Look."}]},
        {"role": "user", "content": [{"type": "image", "url": doc["picture"]}, *content]},
    ]


def target(doc, kwargs):
    return doc["answer"] + kwargs["end"]


def judge(doc, results):
    right = results[0] == doc["answer"] or random.random() < 0.5
    entry = {"score": float(right), "room": doc["room"], "fields": sorted(doc)}
    return {"clustered": entry, "by_room": (doc["room"], right), "unlisted": results[0]}


def mean_score(items):
    return 100 * sum(one["score"] for one in items) / len(items)


def by_room(items, args):
    rooms = {}
    for room, right in items:
        rooms.setdefault(room, []).append(right)
    folder = Path(args.output_path) / "submissions"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rooms.json").write_text(json.dumps(rooms))
    return {room: sum(marks) / len(marks) for room, marks in rooms.items()}


def sound(doc):
    return [doc["sound"]]


class Letter(ExtendedRegexFilter):
    def apply(self, resps, docs):
        return [
            [self.find_match(self.regex, self.filter_ignores(one)) or doc["letters"][0] for one in several]
            for several, doc in zip(resps, docs, strict=True)
        ]
