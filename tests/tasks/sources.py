"""Small data sources of every task kind."""

import json
from collections.abc import Callable
from pathlib import Path


def squad(number: int) -> str:
    context = f"Study {number}. The protein p53 binds to DNA."
    answer = {"text": "p53", "answer_start": context.index("p53")}
    question = {"id": f"q{number}", "question": "Which protein binds?", "answers": [answer]}
    return json.dumps(
        {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": [question]}]}]}
    )


def lines(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


DATA: dict[str, tuple[str, Callable[[int], str]]] = {
    "ner": (".tsv", lambda n: f"Trial{n}\tO\nof\tO\naspirin\tB-Drug\n.\tO\n"),
    "pico": (".tsv", lambda n: f"Trial{n}\tO\nof\tO\naspirin\tI-INT\n.\tO\n\nadults\tI-PAR\n.\tO\n"),
    "qa": (".json", squad),
    "relation": (
        ".jsonl",
        lambda n: lines(
            *(
                {"text": f"In trial {n} << aspirin >> blocks [[ COX{i} ]].", "label": label}
                for i, label in enumerate("ab")
            )
        ),
    ),
    "similarity": (
        ".tsv",
        lambda n: (
            "sentence1\tsentence2\tscore\n" + "".join(f"a {n} {i} b\tc {n} {i} d\t{i / 3:.2f}\n" for i in range(8))
        ),
    ),
    "nli": (
        ".jsonl",
        lambda n: lines(
            *(
                {"sentence1": f"He has a fever, case {n}{i}.", "sentence2": "He is ill.", "gold_label": label}
                for i, label in enumerate(("entailment", "neutral", "contradiction"))
            )
        ),
    ),
    "classification": (
        ".tsv",
        lambda n: "text\tlabel\n" + "".join(f"A study number {n} of {label}\t{label}\n" for label in ("mice", "men")),
    ),
}


def write_data(root: Path, kind: str) -> str:
    """Write train, dev and test of a task kind, and return the directory."""
    suffix, text = DATA[kind]
    for number, split in enumerate(("train", "dev", "test")):
        (root / f"{split}{suffix}").write_text(text(number), encoding="utf-8")
    return str(root)
