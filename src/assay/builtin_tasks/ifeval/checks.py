"""Whether a response does what an instruction of IFEval asks for: one short function for each of the 25 kinds.

The names of the arguments are those of the dataset. What each kind means is defined by the paper and by Google's program
for it; where that program draws a missing argument at random, here it has to be given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from assay.builtin_tasks.ifeval.reading import capital_words, count_sentences, language_of


def _compare(count: int, relation: str, number: int) -> bool:
    if relation not in ("less than", "at least"):
        raise ValueError(f"IFEval knows `less than` and `at least`, not `{relation}`")
    return count < number if relation == "less than" else count >= number


# --- words and letters that must or must not occur ----------------------------------------------------


def has_keywords(response: str, keywords: list[str]) -> bool:
    """
    >>> has_keywords("A Riddle of forests", keywords=["forest", "riddle"]), has_keywords("A riddle", keywords=["forest"])
    (True, False)
    """
    return all(re.search(re.escape(word), response, re.IGNORECASE) for word in keywords)


def has_keyword_often(response: str, keyword: str, frequency: int, relation: str) -> bool:
    """
    >>> has_keyword_often("war and War", keyword="war", frequency=2, relation="at least")
    True
    """
    return _compare(len(re.findall(re.escape(keyword), response, re.IGNORECASE)), relation, frequency)


def avoids_words(response: str, forbidden_words: list[str]) -> bool:
    """Whole words only.

    >>> avoids_words("A stationary bus", forbidden_words=["station"]), avoids_words("The Station.", forbidden_words=["station"])
    (True, False)
    """
    return not any(re.search(rf"\b{re.escape(word)}\b", response, re.IGNORECASE) for word in forbidden_words)


def has_letter_often(response: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    """
    >>> has_letter_often("Eel!", letter="e", let_frequency=2, let_relation="at least")
    True
    """
    return _compare(response.lower().count(letter.strip().lower()), let_relation, let_frequency)


# --- languages and cases ------------------------------------------------------------------------------


def is_in_language(response: str, language: str) -> bool:
    """A response in which no language can be seen (numbers, signs) passes."""
    return language_of(response) in (language, None)


def is_english_capitals(response: str) -> bool:
    return response.isupper() and is_in_language(response, "en")


def is_english_lowercase(response: str) -> bool:
    return response.islower() and is_in_language(response, "en")


def has_capital_words(response: str, capital_frequency: int, capital_relation: str) -> bool:
    """
    >>> has_capital_words("This is VERY, VERY good", capital_frequency=2, capital_relation="at least")
    True
    """
    return _compare(len(capital_words(response)), capital_relation, capital_frequency)


# --- lengths ------------------------------------------------------------------------------------------


def has_sentences(response: str, num_sentences: int, relation: str) -> bool:
    """
    >>> has_sentences("One. Two!", num_sentences=3, relation="less than")
    True
    """
    return _compare(count_sentences(response), relation, num_sentences)


def has_words(response: str, num_words: int, relation: str) -> bool:
    """
    >>> has_words("It's a well-known fact", num_words=6, relation="at least")
    True
    """
    return _compare(len(re.findall(r"\w+", response)), relation, num_words)


def has_paragraphs(response: str, num_paragraphs: int) -> bool:
    r"""Between the dividers `***`; an empty one is allowed at the beginning and at the end.

    >>> has_paragraphs("One\n***\nTwo", num_paragraphs=2), has_paragraphs("One\n***\n\n***\nTwo", num_paragraphs=2)
    (True, False)
    """
    parts = re.split(r"\s?\*\*\*\s?", response)
    inside = parts[1:-1]
    ends = [part for part in (parts[0], *parts[1:][-1:]) if part.strip()]
    return all(part.strip() for part in inside) and len(inside) + len(ends) == num_paragraphs


def has_first_word(response: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    r"""Paragraphs between blank lines: so many of them, and the n-th begins with a word.

    >>> has_first_word("Well.\n\n\"Now, then\"", num_paragraphs=2, nth_paragraph=2, first_word="now")
    True
    """
    parts = [part.strip() for part in response.split("\n\n")]
    count = sum(bool(part) for part in parts)
    if nth_paragraph > count or not parts[nth_paragraph - 1]:
        return False
    word = parts[nth_paragraph - 1].split()[0].lstrip("'").lstrip('"')
    begins = re.match(r"""[^.,?!'"]*""", word)
    return count == num_paragraphs and begins is not None and begins[0].lower() == first_word.lower()


# --- what must be in it -------------------------------------------------------------------------------


def has_placeholders(response: str, num_placeholders: int) -> bool:
    """
    >>> has_placeholders("Dear [name], come to [place]", num_placeholders=2)
    True
    """
    return len(re.findall(r"\[.*?\]", response)) >= num_placeholders


def has_postscript(response: str, postscript_marker: str) -> bool:
    """
    >>> has_postscript("Bye.\\nP. S. One more thing", postscript_marker="P.S.")
    True
    """
    known = {"P.S.": r"p\.\s?s\.", "P.P.S": r"p\.\s?p\.\s?s"}
    marker = known.get(postscript_marker, re.escape(postscript_marker.lower()))
    return re.search(marker, response.lower()) is not None


# --- forms --------------------------------------------------------------------------------------------


def has_bullets(response: str, num_bullets: int) -> bool:
    """
    >>> has_bullets("* one\\n- two", num_bullets=2), has_bullets("* one\\n**two**", num_bullets=2)
    (True, False)
    """
    starred = re.findall(r"^\s*\*[^*].*$", response, re.MULTILINE)
    dashed = re.findall(r"^\s*-.*$", response, re.MULTILINE)
    return len(starred) + len(dashed) == num_bullets


def is_one_of_three(response: str) -> bool:
    """
    >>> is_one_of_three("My answer is maybe."), is_one_of_three("Maybe.")
    (True, False)
    """
    return any(f"My answer is {word}." in response for word in ("yes", "no", "maybe"))


def has_highlights(response: str, num_highlights: int) -> bool:
    """Between one asterisk and the next on a line, or between two and two.

    >>> has_highlights("*This* and **that** and * *", num_highlights=2)
    True
    """
    single = [text.strip("*") for text in re.findall(r"\*[^\n*]*\*", response)]
    double = re.findall(r"\*\*([^\n*]*)\*\*", response)
    return sum(bool(text.strip()) for text in (*single, *double)) >= num_highlights


def has_sections(response: str, section_spliter: str, num_sections: int) -> bool:
    """
    >>> has_sections("SECTION 1\\nOne\\nSECTION 2\\nTwo", section_spliter="SECTION", num_sections=2)
    True
    """
    return len(re.findall(rf"\s?{re.escape(section_spliter)}\s?\d+\s?", response)) >= num_sections


def is_json(response: str) -> bool:
    """As it is, or in a block of Markdown.

    >>> is_json('{"a": 1}'), is_json('```json\\n[1]\\n```'), is_json("a: 1")
    (True, True, False)
    """
    text = response.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    except ValueError:
        return False
    return True


def has_title(response: str) -> bool:
    """
    >>> has_title("<<A song>> La la"), has_title("<< >> La la"), has_title("A song")
    (True, False, False)
    """
    return any(title.lstrip("<").rstrip(">").strip() for title in re.findall(r"<<[^\n]+>>", response))


def avoids_commas(response: str) -> bool:
    """
    >>> avoids_commas("One and two."), avoids_commas("One, two.")
    (True, False)
    """
    return "," not in response


# --- beginnings, ends, and the whole ------------------------------------------------------------------


def is_quoted(response: str) -> bool:
    """
    >>> is_quoted('"All of it."'), is_quoted('"Some" of it'), is_quoted('"')
    (True, False, False)
    """
    text = response.strip()
    return len(text) > 1 and text.startswith('"') and text.endswith('"')


def ends_with(response: str, end_phrase: str) -> bool:
    """
    >>> ends_with('Yes. "Any other questions?"', end_phrase="Any other questions?"), ends_with("Yes.", end_phrase="No.")
    (True, False)
    """
    return response.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def repeats_the_prompt(response: str, prompt_to_repeat: str) -> bool:
    """
    >>> repeats_the_prompt("Say hello. Hello.", prompt_to_repeat="Say hello.")
    True
    """
    return response.strip().lower().startswith(prompt_to_repeat.strip().lower())


def gives_two_responses(response: str) -> bool:
    """Two different ones, divided by six asterisks.

    >>> gives_two_responses("One\\n******\\nTwo"), gives_two_responses("One ****** One")
    (True, False)
    """
    parts = [part.strip() for part in response.split("******")]
    if not all(parts[1:-1]):
        return False
    given = [part for part in parts if part]
    return len(given) == 2 and given[0] != given[1]


CHECKS: dict[str, Callable[..., bool]] = {
    "keywords:existence": has_keywords,
    "keywords:frequency": has_keyword_often,
    "keywords:forbidden_words": avoids_words,
    "keywords:letter_frequency": has_letter_often,
    "language:response_language": is_in_language,
    "length_constraints:number_sentences": has_sentences,
    "length_constraints:number_paragraphs": has_paragraphs,
    "length_constraints:number_words": has_words,
    "length_constraints:nth_paragraph_first_word": has_first_word,
    "detectable_content:number_placeholders": has_placeholders,
    "detectable_content:postscript": has_postscript,
    "detectable_format:number_bullet_lists": has_bullets,
    "detectable_format:constrained_response": is_one_of_three,
    "detectable_format:number_highlighted_sections": has_highlights,
    "detectable_format:multiple_sections": has_sections,
    "detectable_format:json_format": is_json,
    "detectable_format:title": has_title,
    "combination:two_responses": gives_two_responses,
    "combination:repeat_prompt": repeats_the_prompt,
    "startend:end_checker": ends_with,
    "startend:quotation": is_quoted,
    "change_case:capital_word_frequency": has_capital_words,
    "change_case:english_capital": is_english_capitals,
    "change_case:english_lowercase": is_english_lowercase,
    "punctuation:no_comma": avoids_commas,
}
"""Every kind of instruction in the dataset."""
