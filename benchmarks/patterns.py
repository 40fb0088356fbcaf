"""Compare the pattern engine of filter expressions with google-re2: time for many responses, and what both match.

    python benchmarks/patterns.py [--texts 100000]

Both engines take time linear in the text. The times are CPU times of searching responses of 300 characters one by one, as
`response~/…/` does; reading the responses from the journal takes longer and is part of the viewer benchmark. The second table
lists patterns on which the engines disagree with Python's `re`, whose syntax and meaning task files use.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections.abc import Callable

import re2
from measurements import Measurement, Report, add_json_option

from assay.store.filters.patterns import compile_pattern

WORDS = (
    "the of and a question answer which following true about physics river stone light number train apple seven twelve"
    " hundred percent because therefore energy market history culture language model capital empire theory cell plant"
).split()
PATTERNS = {
    "a digit and 5": r"\d5",
    "a literal word and digits": r"answer is \d{3}\.",
    "one word": r"^\w+$",
    "two words and a digit": r"\w+ \w+ing \d",
    "alternatives with text between": r"(river|stone).*(light|number)",
    "four words in this order": r"river.*stone.*light.*seven",
    "nested repetition": r"(a+)+b",
    "the end, in any case": r"(?i)ANSWER\s+is\s+(\d+)\.$",
}
MEANINGS = [
    ("an Arabic digit", r"\d", "٣"),
    ("an accented letter", r"\w", "é"),
    ("a no-break space", r"a\sb", "a\u00a0b"),
    ("a boundary before an accented letter", r"\bé", "é"),
    ("the end before a final line break", "a$", "a\n"),
    ("the end", r"a\Z", "a"),
    ("at most three", "^a{,3}b", "aab"),
    ("a character code", "\\u00e9", "é"),
    ("a text with a lone surrogate", "a", "a\ud800"),
]


def find(search: Callable[[str], object], text: str) -> str:
    """Return what an engine says about a text."""
    try:
        return "match" if search(text) else "no match"
    except (UnicodeError, ValueError, re.error, re2.error) as error:
        return f"error ({type(error).__name__})"


def measure(search: Callable[[str], object], texts: list[str]) -> tuple[float, int]:
    """Return the CPU milliseconds to search all texts, and the number of matches."""
    begin = time.process_time()
    found = sum(1 for text in texts if search(text))
    return 1000 * (time.process_time() - begin), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--texts", type=int, default=100_000)
    add_json_option(parser)
    given = parser.parse_args()
    report = Report(given.json)
    rng = random.Random(0)
    texts = [
        f"{' '.join(rng.choices(WORDS, k=45))}. The answer is {n * 7 % 1000}." for n in range(given.texts)
    ]
    print("| pattern | Assay ms | google-re2 ms | matches |\n|---|--:|--:|--:|")
    for what, pattern in PATTERNS.items():
        ours, found = measure(compile_pattern(pattern).matches, texts)
        peer, same = measure(re2.compile(pattern).search, texts)
        assert found == same, (pattern, found, same)
        print(f"| `{pattern}` | {ours:.0f} | {peer:.0f} | {found} |", flush=True)
        report.add(
            Measurement(
                what=f"{len(texts):,} responses: {what}",
                ours=ours,
                unit="ms",
                peer=peer,
                against="google-re2",
            )
        )
    options = re2.Options()
    options.log_errors = False
    print("\n| text | pattern | re | Assay | google-re2 |\n|---|---|---|---|---|")
    differences = {"Assay": 0, "google-re2": 0}
    for what, pattern, text in MEANINGS:
        engines: dict[str, Callable[[str], object]] = {
            "re": re.compile(pattern).search,
            "Assay": compile_pattern(pattern).matches,
            "google-re2": lambda text, pattern=pattern: re2.compile(pattern, options).search(text),
        }
        said = {name: find(search, text) for name, search in engines.items()}
        for name in differences:
            differences[name] += said[name] != said["re"]
        print(f"| {what} | `{pattern}` | {said['re']} | {said['Assay']} | {said['google-re2']} |")
    report.add(
        Measurement(
            what=f"of {len(MEANINGS)} Unicode and syntax cases, different from Python's re",
            ours=differences["Assay"], peer=differences["google-re2"], unit="cases", against="google-re2",
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
