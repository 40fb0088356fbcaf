from typing import Any


def process_docs(dataset: Any) -> Any:
    return dataset.map(lambda doc: {**doc, "question": doc["question"].upper()})


def score_n(doc: Any, results: Any) -> dict[str, float]:
    return {"n": float((doc["n"] * 5) % 8)}


def agg(items: Any) -> float:
    return float(max(items) - min(items))


def my_metric(references: Any, predictions: Any, **kwargs: Any) -> float:
    return float(len(predictions[0]) > len(references[0]))


def pair_metric(items: Any) -> float:
    return float(len(str(items[0])) < len(str(items[1])))


def visual(doc: Any) -> list[Any]:
    return [doc["image"].convert("RGB")]
