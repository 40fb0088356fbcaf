"""Which fields of a receipt are found in the text that was read."""

import unicodedata

FIELDS = ("company", "date", "address", "total")


def doc_to_visual(doc):
    return [doc["image"].convert("RGB")]


def process_results(doc, results):
    """A field counts when its letters and digits stand in the text in one piece: spaces and marks are not read alike."""
    text = letters(results[0])
    found = {name: float(letters(doc[name]) in text) for name in FIELDS}
    lines = [line for line in map(letters, doc["lines"]) if line]
    found["lines"] = sum(line in text for line in lines) / len(lines)
    found["fields"] = sum(found[name] for name in FIELDS) / len(FIELDS)
    return found


def letters(text):
    plain = unicodedata.normalize("NFKC", text).upper()
    return "".join(letter for letter in plain if letter.isalnum())
