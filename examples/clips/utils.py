"""Read clips by path. `ASSAY_DATA` must name the folder with the datasets, which contains the videos."""

import os

ACTIONS = {"cartwheel": "cartwheel", "SoccerJuggling": "soccer juggling", "wave": "wave"}


def process_docs(dataset):
    return dataset.filter(lambda row: row["action"] in ACTIONS)


def doc_to_visual(doc):
    return [os.path.join(os.environ["ASSAY_DATA"], "assay", "clips", doc["video"])]


def doc_to_text(doc):
    return f"What does the person do? Answer with one of: {', '.join(ACTIONS.values())}"


def doc_to_messages(doc):
    video = {"type": "video", "url": doc_to_visual(doc)[0], "start_time": 0.0, "end_time": 2.0}
    return [{"role": "user", "content": [video, {"type": "text", "text": doc_to_text(doc)}]}]


def doc_to_target(doc):
    return ACTIONS[doc["action"]]
