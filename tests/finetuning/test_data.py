"""The splits and the metric of a fine-tuning."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.finetuning.data import SplitOptions, open_task_setup, read_splits, select_metric
from biosqueeze.finetuning.run_processes import SPLIT_SEED, RunProcesses
from biosqueeze.finetuning.runs import _train_and_test
from biosqueeze.finetuning.search import SearchPlan
from biosqueeze.stages import finetune
from biosqueeze.tasks.formulation import Formulation


@pytest.fixture
def texts(tmp_path: Path) -> str:
    rows = [json.dumps({"text": f"Text {n}.", "label": "ab"[n % 2]}) for n in range(60)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    return str(tmp_path)


def splits(data: str, seed: int) -> dict[str, list[str]]:
    options = SplitOptions(data, seed, dev_share=0.2, train_size=10)
    read = read_splits(open_task_setup("classification", Formulation()), options)
    return {split: [example.texts[0] for example in examples] for split, examples in read.splits.items()}


def test_options_that_are_given_replace_those_of_a_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that equal the default, and in the runs of a search."""
    forms = [open_task_setup("blurb/jnlpba", Formulation(), given).task.formulation for given in ((), {"merge_types"})]
    assert [form.merge_types for form in forms] == [True, False]
    crf = open_task_setup("compact/jnlpba", Formulation(tagger="crf")).task.formulation
    assert crf == Formulation(tagger="crf")
    options = finetune.Options(checkpoint="m", data="d", seeds=2, sources={"merge_types": "recipe"})

    def call(_self: object, _name: str, _arguments: object, variables: Mapping[str, str], _log: Path) -> str:
        raise SqueezeError(variables["BIOSQUEEZE_FINETUNE_MERGE_TYPES"])

    monkeypatch.setattr(RunProcesses, "call", call)
    for run in finetune._search_plan(options, tmp_path / "out").runs():
        with pytest.raises(SqueezeError, match=r"^false$"):
            _train_and_test(run, RunProcesses(), {}, "best")


def test_questions_about_a_passage_stay_together(tmp_path: Path) -> None:
    passages = [f"Passage {number} says yes." for number in range(10)]
    paragraphs = [
        {
            "context": text,
            "qas": [
                {"id": f"{text} {n}", "question": f"Question {n}?", "answers": [{"text": "yes", "answer_start": 15}]}
                for n in range(3)
            ],
        }
        for text in passages
    ]
    (tmp_path / "train.json").write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    read = read_splits(open_task_setup("qa", Formulation()), SplitOptions(str(tmp_path), 0, dev_share=0.2))
    train, dev = ({question.passages[0].text for question in read.splits[split]} for split in ("train", "dev"))
    assert len(dev) == 2
    assert train | dev == set(passages)
    assert not train & dev


def test_hypotheses_of_a_premise_stay_together(tmp_path: Path) -> None:
    labels = ("entailment", "neutral", "contradiction")
    pairs = [(f"Premise {n} of several words.", f"Hypothesis {label}.", label) for n in range(20) for label in labels]
    rows = [json.dumps(dict(zip(("sentence1", "sentence2", "label"), pair, strict=True))) for pair in pairs]
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    read = read_splits(open_task_setup("nli", Formulation()), SplitOptions(str(tmp_path), 0, dev_share=0.2))
    train, dev = ([pair.texts[0] for pair in read.splits[split]] for split in ("train", "dev"))
    assert len(dev) == 12
    assert not {*train} & {*dev}


@pytest.mark.parametrize(
    ("task", "row", "missing"),
    [
        ("classification", '{"text": "SPLIT NUMBER", "labels": ["LABEL", "c"]}', "a"),
        ("ner", "SPLIT NUMBER\tB-LABEL\nof\tO\n", "a"),
        ("similarity", '{"sentence1": "SPLIT", "sentence2": "NUMBER", "score": NUMBER}', ""),
    ],
)
def test_labels_that_are_not_drawn_are_named(
    task: str, row: str, missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split in ("train", "dev"):
        rows = [row.replace("LABEL", "ab"[n > 0]).replace("NUMBER", str(n)) for n in range(50)]
        path = tmp_path / f"{split}.{'tsv' if task == 'ner' else 'jsonl'}"
        path.write_text("\n".join(rows).replace("SPLIT", split))
    read_splits(open_task_setup(task, Formulation()), SplitOptions(str(tmp_path), 0, train_size=5))
    said = capsys.readouterr().err
    assert f"no drawn example has {missing}, so" in said if missing else "no drawn" not in said


def test_all_runs_of_a_search_have_one_dev_split(texts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dev: list[list[str]] = []
    train: list[list[str]] = []

    def call(self: RunProcesses, name: str, arguments: Sequence[str], slot: Mapping[str, str], log: Path) -> str:
        with monkeypatch.context() as child:
            for variable, value in slot.items():
                child.setenv(variable, value)
            found = splits(texts, int(arguments[arguments.index("--seed") + 1]))
        dev.append(found["dev"])
        train.append(found["train"])
        raise SqueezeError("read")

    monkeypatch.setattr(RunProcesses, "call", call)
    plan = SearchPlan("teacher", tmp_path / "runs", {"data": texts}, [{"lr": 1}, {"lr": 2}], [3, 4])
    for run in plan.runs():
        with pytest.raises(SqueezeError, match="read"):
            _train_and_test(run, RunProcesses(), {}, "best")
    assert dev == [splits(texts, 3)["dev"]] * 4
    assert train[0] == train[2] != train[1]  # --train-size draws with the seed of the run


def test_single_runs_hold_out_with_their_own_seed(texts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert splits(texts, 0)["dev"] != splits(texts, 1)["dev"]
    monkeypatch.setenv(SPLIT_SEED, "")
    assert splits(texts, 0)["dev"] != splits(texts, 1)["dev"]


def test_a_threshold_selects_no_checkpoint(tmp_path: Path) -> None:
    context = "The protein p53 binds to DNA."
    answers = {"1": [{"text": "p53", "answer_start": 12}], "2": []}
    qas = [
        {"id": n, "question": "Which protein binds?", "answers": items, "is_impossible": not items}
        for n, items in answers.items()
    ]
    for split in ("train", "dev"):
        text = json.dumps({"data": [{"paragraphs": [{"context": context, "qas": qas}]}]})
        (tmp_path / f"{split}-v2.0.json").write_text(text)
    setup = open_task_setup("qa", Formulation())
    data = read_splits(setup, SplitOptions(str(tmp_path), 0))
    assert select_metric(setup, "best_f1", data) == "best_f1"
    with pytest.raises(UsageError, match="no score 'best_f1_thresh'") as caught:
        select_metric(setup, "best_f1_thresh", data)
    assert "thresh" not in str(caught.value).partition("Known: ")[2]
