"""A few documents for each text benchmark, in the columns of its dataset. Written for these tests, from no dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.builtin_tasks.fake_hub import put_configs

Documents = dict[str, dict[str, list[dict[str, Any]]]]

GSM8K: Documents = {
    "main": {
        "train": [
            {
                "question": f"Ben has {n} pens and finds {n}. How many has he?",
                "answer": f"{n} + {n} = {2 * n}\n#### {2 * n}",
            }
            for n in range(1, 8)
        ],
        "test": [
            {
                "question": "Ann sells 3 eggs at $2 each. What does she get?",
                "answer": "3 * 2 = <<3*2=6>>6\n#### 6",
            },
            {
                "question": "A farm has 1200 hens and buys 34. How many are there?",
                "answer": "1200 + 34 = 1234\n#### 1,234",
            },
        ],
    }
}


def _lettered(**texts: str) -> dict[str, list[str]]:
    return {"text": list(texts.values()), "label": list(texts)}


ARC: Documents = {
    config: {
        "train": [
            {
                "id": "t",
                "question": "What is wet?",
                "choices": _lettered(A="Water", B="Sand"),
                "answerKey": "A",
            }
        ],
        "test": [
            {
                "id": "a",
                "question": "Which animal lays eggs?",
                "choices": _lettered(A="cow", B="horse", C="hen", D="dog"),
                "answerKey": "C",
            },
            {
                "id": "b",
                "question": "What melts?",
                "choices": {"text": ["stone", "ice", "wood"], "label": ["1", "2", "3"]},
                "answerKey": "2",
            },
        ],
    }
    for config in ("ARC-Easy", "ARC-Challenge")
}

HELLASWAG: Documents = {
    "default": {
        split: [
            {
                "activity_label": "Baking bread",
                "ctx_a": "A woman kneads dough on a table.",
                "ctx_b": "she",
                "ctx": "A woman kneads dough on a table. she",
                "endings": ["puts it into the oven.", "paints the wall.", "swims home.", "sells the table."],
                "label": "0",
            },
            {
                "activity_label": "Home and Garden",
                "ctx_a": "[header] How to plant a tree [title] Dig a hole. [step] Make it wide.",
                "ctx_b": "",
                "ctx": "[header] How to plant a tree [title] Dig a hole. [step] Make it wide.",
                "endings": ["Fill it [substeps] with snow.", "Put the tree into it.", "Sing.", "Leave."],
                "label": "1",
            },
        ]
        for split in ("train", "validation")
    }
}

WINOGRANDE: Documents = {
    "winogrande_xl": {
        split: [
            {
                "sentence": "The cup fell off the table because _ was wobbly.",
                "option1": "the cup",
                "option2": "the table",
                "answer": "2",
            },
            {
                "sentence": "Nora taught Ida to swim, and _ was proud of her pupil.",
                "option1": "Nora",
                "option2": "Ida",
                "answer": "1",
            },
        ]
        for split in ("train", "validation")
    }
}

PIQA: Documents = {
    "default": {
        split: [
            {
                "goal": "To keep soup warm,",
                "sol1": "put a lid on the pot.",
                "sol2": "put it into snow.",
                "label": 0,
            },
            {"goal": "Cut paper", "sol1": "with a spoon.", "sol2": "with scissors.", "label": 1},
        ]
        for split in ("train", "validation")
    }
}

BOOLQ: Documents = {
    "boolq": {
        split: [
            {"passage": "Owls hunt at night.", "question": "do owls hunt at night", "idx": 0, "label": 1},
            {"passage": "Penguins swim.", "question": "can penguins fly", "idx": 1, "label": 0},
        ]
        for split in ("train", "validation")
    }
}

OPENBOOKQA: Documents = {
    "main": {
        split: [
            {
                "id": "1",
                "question_stem": "A plant grows towards",
                "choices": _lettered(A="the light", B="the moon", C="noise", D="winter"),
                "answerKey": " A",
            }
        ]
        for split in ("train", "validation", "test")
    }
}

SCIQ: Documents = {
    "default": {
        split: [
            {
                "question": "What do bees make?",
                "distractor1": "milk",
                "distractor2": "oil",
                "distractor3": "silk",
                "correct_answer": "honey",
                "support": " Bees make honey.",
            }
        ]
        for split in ("train", "validation", "test")
    }
}

TRIVIAQA: Documents = {
    "rc.nocontext": {
        split: [
            {
                "question": "What is the capital of France?",
                "answer": {"value": "Paris", "aliases": ["Paris", "City of Light"]},
            }
        ]
        for split in ("train", "validation")
    }
}

TRUTHFULQA: Documents = {
    "multiple_choice": {
        "validation": [
            {
                "question": "Do goldfish forget everything after three seconds?",
                "mc1_targets": {"choices": ["No", "Yes", "After four"], "labels": [1, 0, 0]},
                "mc2_targets": {"choices": ["No", "They remember", "Yes"], "labels": [1, 1, 0]},
            }
        ]
    },
    "generation": {
        "validation": [
            {
                "type": "Adversarial",
                "category": "Animals",
                "question": "Do goldfish forget everything after three seconds? ",
                "best_answer": "No, they remember for months",
                "correct_answers": ["No, they remember for months", "They do not.", " "],
                "incorrect_answers": ["Yes, they forget everything"],
                "source": "",
            }
        ]
    },
}

LAMBADA: Documents = {
    "default": {
        "test": [
            {"text": "He opened the box and looked inside the box"},
            {"text": "She called for Anna, and after a while there came Anna"},
        ]
    }
}

WIKITEXT: Documents = {
    "wikitext-2-raw-v1": {
        split: [{"page": " = A town = \n \n It 's a well @-@ known town , with 1 @,@ 000 people . \n"}]
        for split in ("train", "validation", "test")
    }
}

DATASETS: dict[str, Documents] = {
    "openai/gsm8k": GSM8K,
    "allenai/ai2_arc": ARC,
    "Rowan/hellaswag": HELLASWAG,
    "allenai/winogrande": WINOGRANDE,
    "baber/piqa": PIQA,
    "aps/super_glue": BOOLQ,
    "allenai/openbookqa": OPENBOOKQA,
    "allenai/sciq": SCIQ,
    "mandarjoshi/trivia_qa": TRIVIAQA,
    "truthfulqa/truthful_qa": TRUTHFULQA,
    "EleutherAI/lambada_openai": LAMBADA,
    "EleutherAI/wikitext_document_level": WIKITEXT,
}


def lay_out(root: Path) -> None:
    """All of them under a folder that `data_root` can name."""
    for name, configs in DATASETS.items():
        put_configs(root, name, configs)
