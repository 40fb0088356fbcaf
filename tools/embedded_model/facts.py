"""Facts, asked freely, with four lettered choices, or as yes or no."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from examples import Example, choose_weighted


def _parse_pairs(text: str) -> list[tuple[str, str]]:
    return [(left, right) for left, _, right in (entry.strip().partition("=") for entry in text.split(","))]


@dataclass(frozen=True, slots=True)
class FactTable:
    """One kind of fact: its question and its entries, well-known ones first."""

    question: str
    entries: list[tuple[str, str]]

    @property
    def answers(self) -> list[str]:
        """Every answer once, in table order; wrong choices are drawn from them."""
        return list(dict.fromkeys(answer for _, answer in self.entries))


_OPPOSITES = _parse_pairs(
    "hot=cold, big=small, up=down, day=night, good=bad, old=new, fast=slow, wet=dry, open=closed, left=right, "
    "happy=sad, hard=soft, long=short, full=empty, light=dark, rich=poor, early=late, high=low, loud=quiet, "
    "strong=weak, near=far, thick=thin, clean=dirty, first=last, true=false, inside=outside, win=lose, buy=sell"
)
TABLES = {
    "colour": FactTable(
        "What color is {a} {x}?",
        _parse_pairs(
            "banana=yellow, tomato=red, frog=green, plum=purple, carrot=orange, crow=black, swan=white, "
            "strawberry=red, lemon=yellow, leaf=green, cloud=white, pumpkin=orange, cherry=red, cucumber=green, "
            "blueberry=blue, eggplant=purple, sunflower=yellow, snowman=white, panther=black, ruby=red, "
            "cactus=green, whale=blue, canary=yellow, fire truck=red, violet=purple, raven=black, pea=green, "
            "polar bear=white, apricot=orange, sapphire=blue"
        ),
    ),
    "opposite": FactTable(
        "What is the opposite of {x}?", _OPPOSITES + [(right, left) for left, right in _OPPOSITES]
    ),
    "sound": FactTable(
        "Which animal says {x}?",
        _parse_pairs(
            "meow=cat, woof=dog, moo=cow, baa=sheep, quack=duck, oink=pig, neigh=horse, hiss=snake, roar=lion, hoot=owl"
        ),
    ),
    "kind": FactTable(
        "What kind of thing is {a} {x}?",
        _parse_pairs(
            "dog=animal, rose=flower, apple=fruit, hammer=tool, chair=furniture, piano=instrument, car=vehicle, "
            "horse=animal, tulip=flower, pear=fruit, saw=tool, table=furniture, violin=instrument, bus=vehicle, "
            "rabbit=animal, daisy=flower, grape=fruit, drill=tool, sofa=furniture, flute=instrument, train=vehicle, "
            "tiger=animal, lily=flower, mango=fruit, wrench=tool, bed=furniture, drum=instrument, truck=vehicle, "
            "goat=animal, orchid=flower, melon=fruit, shovel=tool, desk=furniture, trumpet=instrument, bicycle=vehicle"
        ),
    ),
    "after": FactTable(
        "What comes after {x}?",
        _parse_pairs(
            "Monday=Tuesday, Tuesday=Wednesday, Wednesday=Thursday, Thursday=Friday, Friday=Saturday, "
            "Saturday=Sunday, Sunday=Monday, January=February, February=March, March=April, April=May, May=June, "
            "June=July, July=August, August=September, September=October, October=November, November=December, "
            "December=January, spring=summer, summer=autumn, autumn=winter, winter=spring"
        ),
    ),
    "home": FactTable(
        "Where does {a} {x} live?",
        _parse_pairs(
            "fish=water, bird=nest, bee=hive, bear=forest, camel=desert, shark=water, deer=forest, wolf=forest, "
            "penguin=ice, seal=ice, cow=farm, pig=farm, hen=farm, ant=ground, mole=ground, octopus=water"
        ),
    ),
}
SIZES = "ant bee mouse frog rat cat fox dog wolf pig lion cow horse rhino elephant whale".split()
CHAT = _parse_pairs(
    "Hello!=Hello! How can I help you?, Hi!=Hello! How can I help you?, "
    "Who are you?=I am a very small model. I ship with Assay., Thank you!=You are welcome., "
    "What can you do?=I can add numbers and copy words. I can look at small pictures."
)


def format_fact_question(table: FactTable, thing: str) -> str:
    """Return the question about one entry, with the correct article."""
    article = "an" if thing[0] in "aeiou" else "a"
    return table.question.format(a=article, x=thing)


def sample_wrong_answers(random: Random, table: FactTable, answer: str, count: int) -> list[str]:
    """Return distinct wrong answers of the same kind."""
    return random.sample([other for other in table.answers if other != answer], count)


def format_choices(question: str, choices: list[str]) -> str:
    """Return the question with its choices as lettered lines, as in MMLU."""
    return question + "".join(
        f"\n{letter}. {choice}" for letter, choice in zip("ABCDE", choices, strict=False)
    )


def free_fact(random: Random) -> Example:
    """A fact asked without choices."""
    if random.random() < 0.03:
        question, answer = random.choice(CHAT)
        return Example(question=question, answer=answer)
    if random.random() < 0.3:
        return random.choice([larger_number, larger_animal])(random)
    table = random.choice(list(TABLES.values()))
    thing, answer = choose_weighted(random, table.entries)
    question = format_fact_question(table, thing)
    if random.random() < 0.1:
        question = question.replace("color", "colour")
    return Example(question=question, answer=answer)


def letter_fact(random: Random) -> Example:
    """A fact with four choices, answered by a letter."""
    table = random.choice(list(TABLES.values()))
    thing, answer = choose_weighted(random, table.entries)
    choices = [answer, *sample_wrong_answers(random, table, answer, 3)]
    random.shuffle(choices)
    return Example(
        question=format_choices(format_fact_question(table, thing), choices),
        answer="ABCD"[choices.index(answer)],
    )


def find_letters(random: Random) -> list[Example]:
    """A list of lettered words, then the letter of each: the skill that a lettered choice needs besides the fact."""
    words = sorted({answer for table in TABLES.values() for answer in table.answers})
    chosen = random.sample(words, random.randint(2, 4))
    asked = random.sample(chosen, len(chosen))
    examples = [Example(question=f"{word} is", answer="ABCD"[chosen.index(word)], raw=True) for word in asked]
    first = format_choices("", chosen).strip() + f"\n\n{asked[0]} is"
    return [Example(question=first, answer=examples[0].answer, raw=True), *examples[1:]]


def few_letters(random: Random) -> list[Example]:
    """Two facts with two or three choices each."""
    examples = []
    for _ in range(2):
        table = random.choice(list(TABLES.values()))
        thing, answer = choose_weighted(random, table.entries)
        wrong = sample_wrong_answers(random, table, answer, random.randint(1, 2))
        choices = random.sample([answer, *wrong], len(wrong) + 1)
        question = format_choices(format_fact_question(table, thing), choices)
        examples.append(Example(question=question, answer="ABCD"[choices.index(answer)]))
    return examples


def yes_no_drill(random: Random) -> list[Example]:
    """Five facts to affirm or deny."""
    return [replace(yes_no_fact(random), raw=True) for _ in range(5)]


def larger_number(random: Random) -> Example:
    """Which of two numbers is larger."""
    first, second = random.sample(range(1, 100), 2)
    return Example(question=f"Which is larger, {first} or {second}?", answer=str(max(first, second)))


def larger_animal(random: Random) -> Example:
    """Which of two animals is larger."""
    small, large = sorted(random.sample(range(len(SIZES)), 2))
    pair = [SIZES[small], SIZES[large]]
    random.shuffle(pair)
    return Example(question=f"Which is larger, a {pair[0]} or a {pair[1]}?", answer=SIZES[large])


def yes_no_fact(random: Random) -> Example:
    """A color or kind, correct half the time."""
    table = TABLES[random.choice(["colour", "kind"])]
    thing, answer = choose_weighted(random, table.entries)
    right = random.random() < 0.5
    stated = answer if right else sample_wrong_answers(random, table, answer, 1)[0]
    article = "an" if thing[0] in "aeiou" else "a"
    stated_article = (
        ""
        if table is TABLES["colour"] or stated == "furniture"
        else ("an " if stated[0] in "aeiou" else "a ")
    )
    return Example(
        question=f"Is {article} {thing} {stated_article}{stated}?", answer="yes" if right else "no"
    )
