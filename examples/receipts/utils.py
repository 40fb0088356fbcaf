"""Score which fields of a receipt appear in the text that the model read."""

import unicodedata

FIELDS = ("company", "date", "address", "total")


def doc_to_visual(doc):
    return [doc["image"].convert("RGB")]


def process_results(doc, results):
    """Score a field as found if the text contains its letters and digits in order, ignoring spaces and punctuation."""
    text = keep_alphanumeric(results[0])
    found = {name: float(keep_alphanumeric(doc[name]) in text) for name in FIELDS}
    lines = [line for line in map(keep_alphanumeric, doc["lines"]) if line]
    found["lines"] = sum(line in text for line in lines) / len(lines)
    found["fields"] = sum(found[name] for name in FIELDS) / len(FIELDS)
    return found


def keep_alphanumeric(text):
    plain = unicodedata.normalize("NFKC", text).upper()
    return "".join(letter for letter in plain if letter.isalnum())
