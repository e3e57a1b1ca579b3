"""Reading questions: SQuAD's JSON, BioASQ's JSON, records, and the errors for invalid files."""

import gzip
import json
from pathlib import Path

import pytest

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.tasks import Formulation
from biosqueeze.tasks.qa import Kind
from biosqueeze.tasks.readers.questions import Passage, Question

CONTEXT = "Lopimab is an antibody. It binds KRT5 in the skin."
SPLITS = ("train", "dev")
A, B = "56bf365eef6e39474100001a", "56bf365eef6e39474100001b"  # ids like BioASQ's


def item(name: str, *answers: tuple[str, int], **more: object) -> dict:
    return {
        "id": name,
        "question": f"What of {name.partition('_')[0]}?",
        "answers": [{"text": text, "answer_start": start} for text, start in answers],
        **more,
    }


def squad(*items: dict, context: str = CONTEXT) -> dict:
    return {"version": "x", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(items)}]}]}


def bioasq(*questions: dict) -> dict:
    return {"questions": list(questions)}


def factoid(name: str, answer: object, *snippets: str) -> dict:
    return {
        "id": name, "body": "Which gene?", "type": "factoid", "exact_answer": answer,
        "snippets": [{"text": text, "document": "d"} for text in snippets],
    }  # fmt: skip


GOOD = squad(item("a1", ("KRT5", 33)))
OTHER = squad(item("b1", ("Lopimab", 0)))


def folder(root: Path, **files: object) -> str:
    """Files called NAME.json."""
    for name, content in files.items():
        path = root / f"{name}.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return str(root)


def read(source: str, *splits: str, column: tuple[str, ...] = ()):
    return Kind(Formulation(column=column)).read(source, splits or SPLITS)


def test_squad_1_1_under_its_usual_names(tmp_path, capsys):
    (tmp_path / "train-v1.1.json").write_text(json.dumps(squad(item("a1", ("KRT5", 33)), item("a2", ("antibody", 14)))))
    with gzip.open(tmp_path / "dev-v1.1.json.gz", "wt") as stream:
        json.dump(squad(item("b1", ("Lopimab", 0), ("Lopimab is an antibody", 0), ("Lopimab", 0))), stream)
    data = read(str(tmp_path))
    assert (data.labels, data.scheme) == ((), "span")
    assert data.splits["train"] == (
        Question("a1", "What of a1?", (Passage(CONTEXT, (33, 37)),), ("KRT5",)),
        Question("a2", "What of a2?", (Passage(CONTEXT, (14, 22)),), ("antibody",)),
    )
    (dev,) = data.splits["dev"]
    assert dev.passages == (Passage(CONTEXT, (0, 7)),)
    assert dev.gold.texts == ("Lopimab", "Lopimab is an antibody")
    log = capsys.readouterr().err
    assert "train is train-v1.1.json" in log
    assert "dev is dev-v1.1.json.gz" in log
    assert "train 2 questions, 2 passages" in log


def test_squad_2_0_has_questions_without_an_answer(tmp_path, capsys):
    none = item("a2", is_impossible=True, plausible_answers=[{"text": "skin", "answer_start": 45}])
    source = folder(tmp_path, train=squad(item("a1", ("KRT5", 33), is_impossible=False), none), dev=OTHER)
    first, second = read(source).splits["train"]
    assert first.answers == ("KRT5",)
    assert second.answers == second.gold.texts == ()
    assert second.passages == (Passage(CONTEXT),)
    assert "1 without an answer" in capsys.readouterr().err


def test_biobert_snippets_are_passages_of_one_question(tmp_path):
    content = squad(item(f"{A}_001", ("KRT5", 33)), item(f"{B}_001", ("skin", 45)))
    content["data"][0]["paragraphs"].append({"context": "krt5 again", "qas": [item(f"{A}_002", ("krt5", 0))]})
    (tmp_path / "BioASQ-train-factoid-7b.json").write_text(json.dumps(content))
    (tmp_path / "BioASQ-train-yesno-7b.json").write_text(json.dumps({"data": []}))
    first, second = read(str(tmp_path), "train").splits["train"]
    assert first == Question(
        A, f"What of {A}?", (Passage(CONTEXT, (33, 37)), Passage("krt5 again", (0, 4))), ("KRT5", "krt5")
    )
    assert second.id == B


def test_numbered_ids_of_different_questions_stay_apart(tmp_path):
    content = squad({**item(f"{A}_001", ("KRT5", 33)), "question": "x?"}, item(f"{A}_002", ("skin", 45)))
    source = folder(tmp_path, train=content)
    assert [question.id for question in read(source, "train").splits["train"]] == [f"{A}_001", f"{A}_002"]


def test_numbered_ids_that_are_not_of_bioasq_stay_apart(tmp_path):
    names = ["trial_001", "trial_002", f"{A}_0001", f"{A}_0002", f"0{A}_001", f"0{A}_002"]
    source = folder(tmp_path, train=squad(*(item(name, ("KRT5", 33)) for name in names)))
    assert [question.id for question in read(source, "train").splits["train"]] == names


def test_biobert_test_sets_have_answers_in_the_golden_file(tmp_path, capsys):
    unlabelled = [squad({"id": f"{name}_001", "question": f"{name[-1]}?"}) for name in (A, B)]
    for number, content in enumerate(unlabelled, 1):
        (tmp_path / f"BioASQ-test-factoid-7b-{number}.json").write_text(json.dumps(content))
    yesno = {"id": "5c", "body": "Is it?", "type": "yesno", "exact_answer": "yes"}
    golden = bioasq(factoid(A, [["keratin 5", "KRT5"]]), factoid(B, ["skin"]), yesno)
    (tmp_path / "7B1_golden.json").write_text(json.dumps(golden))
    first, second = read(str(tmp_path), "test").splits["test"]
    assert first == Question(A, "a?", (Passage(CONTEXT),), ("keratin 5", "KRT5"))
    assert second.answers == ("skin",)
    assert "gold answers are from 7B1_golden.json" in capsys.readouterr().err
    (tmp_path / "7B1_golden.json").unlink()
    with pytest.raises(SqueezeError, match=rf'7b-1.json: question {A}_001 has no "answers".*golden'):
        read(str(tmp_path), "test")


def test_official_bioasq_files(tmp_path, capsys):
    listed = {"id": "l", "body": "Which?", "type": "list", "exact_answer": [["x"]]}
    train = bioasq(
        factoid("5a", [["keratin 5", "krt5"]], CONTEXT, "KRT50 is another gene.", CONTEXT),
        factoid("5b", "skin", "No such organ."),
        listed,
    )
    (tmp_path / "training7b.json").write_text(json.dumps(train))
    (tmp_path / "7B1_golden.json").write_text(json.dumps(bioasq(factoid("5c", [["x"]], "About x and y."))))
    first, second = read(str(tmp_path), "train").splits["train"]
    assert first == Question(
        "5a", "Which gene?", (Passage(CONTEXT, (33, 37)), Passage("KRT50 is another gene.")), ("keratin 5", "krt5")
    )
    assert (second.passages, second.answers) == ((Passage("No such organ."),), ("skin",))
    assert "2 of 3 questions are factoid; 1 of them have an exact answer in a snippet" in capsys.readouterr().err
    (test,) = read(str(tmp_path), "test").splits["test"]
    assert (test.id, test.passages) == ("5c", (Passage("About x and y.", (6, 7)),))


def lines(*records: dict) -> str:
    return "\n".join(json.dumps(record) for record in records)


def record(name: str, *answers: tuple[str, int], context: str = CONTEXT, **more: object) -> dict:
    texts, starts = [text for text, _ in answers], [start for _, start in answers]
    return {
        "id": name, "question": f"What of {name}?", "context": context,
        "answers": {"text": texts, "answer_start": starts}, **more,
    }  # fmt: skip


def test_json_lines_as_datasets_writes_them(tmp_path):
    (tmp_path / "train.jsonl").write_text(lines(record("a1", ("KRT5", 33)), record("a2")))
    (tmp_path / "dev.json").write_text(lines(record("b1", ("Lopimab", 0)), record("b2", ("skin", 45))))
    data = read(str(tmp_path))
    assert data.splits["train"] == (
        Question("a1", "What of a1?", (Passage(CONTEXT, (33, 37)),), ("KRT5",)),
        Question("a2", "What of a2?", (Passage(CONTEXT),), ()),
    )
    assert [question.id for question in data.splits["dev"]] == ["b1", "b2"]


def test_a_saved_dataset(tmp_path):
    datasets = pytest.importorskip("datasets")
    split = datasets.Dataset.from_list([record("a1", ("KRT5", 33)), record("a2")])
    datasets.DatasetDict({"train": split, "validation": split}).save_to_disk(tmp_path / "saved")
    data = read(str(tmp_path / "saved"))
    assert [question.answers for question in data.splits["dev"]] == [("KRT5",), ()]


def test_columns_are_named(tmp_path):
    rows = [{"q": "What?", "abstract": CONTEXT, "found": [{"text": "KRT5", "answer_start": 33}]}]
    (tmp_path / "train.jsonl").write_text(lines(*rows))
    with pytest.raises(SqueezeError, match=r"no column for 'question'.*--column question=NAME"):
        read(str(tmp_path), "train")
    named = ("question=q", "answers=found")
    (question,) = read(str(tmp_path), "train", column=named).splits["train"]
    assert (question.text, question.answers) == ("What?", ("KRT5",))
    folder(tmp_path, dev=GOOD)
    with pytest.raises(UsageError, match=r"--column question=q does not apply to dev.json"):
        read(str(tmp_path), "dev", column=named)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (squad(item("a1", ("KRT5", 30))), r"a1: the answer 'KRT5' is not at .* 30 .* has 'ds K' there; it is at 33"),
        (squad(item("a1", ("KRT7", 33))), r"'KRT7' is not at character 33 .* has 'KRT5' there; it is nowhere"),
        (squad(item("a1", ("KRT5", 900))), r"not at character 900 .* which has nothing there; it is at 33"),
        (squad(item("a1", ("KRT5", -1))), r"not at character -1 of the context, which has nothing there"),
        (squad(item("a1", ("n", 3))), r"it is at 12, 15, 29, \.\.\."),
        (squad(item("a1", ("krt5", 33))), r"'krt5' is not at character 33 .* has 'KRT5' there"),
        (squad(item("a1", ("", 3))), r'question a1: an answer has an empty "text"'),
        (squad(item("a1", ("KRT5", None))), r"'KRT5' has no answer_start"),
        (squad(item("a1", ("KRT5", 33)), item("a1", ("skin", 45))), r"question a1: the id occurs twice"),
        (squad(item("a1", ("KRT5", 33)), context=" "), r'question a1 has an empty "context"'),
        (squad({**item("a1", ("KRT5", 33)), "question": ""}), r'question a1 has an empty "question"'),
        (squad({**item("a1", ("KRT5", 33)), "question": 5}), r'question a1 has a "question" of type int'),
        (squad(item("", ("KRT5", 33))), r'qas\[0\] has no "id"'),
        (squad(item("a1")), r'question a1 has no "answers", and there is no \*golden\*.json'),
        (squad(item("a1", ("KRT5", 33), is_impossible=True)), r"question a1 is_impossible, but has answers"),
        (squad({**item("a1"), "answers": "KRT5"}), r"question a1: answers must have the form"),
        (squad(), r"is empty: its train split holds no question"),
        ({"data": []}, r"is empty: its train split holds no question"),
        ({"data": [{"title": "t"}]}, r'data\[0\] has no list "paragraphs"'),
        ({"data": [5]}, r"data\[0\] is of type int"),
        ('{"data": [\n{"x": 1,}]}', r"train.json:2: invalid JSON"),
        (bioasq(factoid("5a", "x") | {"snippets": 5}), r'question 5a has no list "snippets"'),
        (bioasq(factoid("5a", "x") | {"snippets": ["x"]}), r"question 5a: snippets\[0\] is of type str"),
        (bioasq(factoid("5a", None, CONTEXT)), r'question 5a has no "exact_answer"'),
        (bioasq({**factoid("5a", "x"), "body": None}), r'question 5a has no "body"'),
        (bioasq({**factoid("5a", "x"), "type": "list"}), r"no question of type factoid"),
        (bioasq(factoid("5a", "x"), factoid("5a", "y")), r"question 5a occurs twice"),
        (lines(record("a1", ("KRT5", 1)), record("a2")), r"json:1: question a1: the answer 'KRT5' is not at"),
        (lines(record("a1"), record("a1")), r"train.json:2: question a1: the id occurs twice"),
        (lines(record("a1"), {**record("a2"), "answers": {"text": ["x"]}}), r"json:2: answers must have the form"),
        (lines({**record("a1"), "answers": {"text": ["x"], "answer_start": []}}, record("a2")), r"1: answers must"),
        (lines(record("a1"), record("a2", context="")), r'train.json:2: question a2 has an empty "context"'),
    ],
)  # fmt: skip
def test_errors_name_file_and_question(train, message, tmp_path):
    with pytest.raises(SqueezeError, match=message) as raised:
        read(folder(tmp_path, train=train, dev=OTHER))
    assert "train" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_errors_in_test_are_found_before_training(tmp_path):
    source = folder(tmp_path, train=GOOD, dev=OTHER, test=squad(item("c1", ("KRT5", 1))))
    with pytest.raises(SqueezeError, match=r"test.json: question c1: the answer"):
        read(source)


UNANSWERED = {key: value for key, value in record("c1").items() if key != "answers"}


@pytest.mark.parametrize(
    "test",
    [
        squad(item("c1"), item("c2")),
        bioasq(factoid("5a", None, CONTEXT)),
        lines(UNANSWERED, {**UNANSWERED, "id": "c2"}),
        lines({**UNANSWERED, "answers": None}, {**UNANSWERED, "id": "c2", "answers": None}),
    ],
)
def test_a_test_split_without_answers_is_left_out(test, tmp_path, capsys):
    source = folder(tmp_path, train=GOOD, dev=OTHER, test=test)
    assert set(read(source).splits) == {"train", "dev"}
    assert "test has no answers and is not compared with train and dev" in capsys.readouterr().err
    with pytest.raises(SqueezeError, match=r"answers|exact_answer"):
        read(source, "test")


def test_an_answer_that_is_missing_in_test_is_found(tmp_path):
    source = folder(tmp_path, train=GOOD, dev=OTHER, test=squad(item("c1", ("KRT5", 33)), item("c2")))
    with pytest.raises(SqueezeError, match=r'question c2 has no "answers"'):
        read(source)


def test_a_test_split_used_as_dev_is_refused(tmp_path):
    for name, content in (("train", GOOD), ("dev", OTHER), ("test", OTHER)):
        folder(tmp_path, **{name: content})
    with pytest.raises(SqueezeError, match="a test split used for selection"):
        read(str(tmp_path))


def test_missing_splits_name_the_expected_files(tmp_path):
    source = folder(tmp_path, train=GOOD)
    with pytest.raises(
        SqueezeError, match=r"has no dev split: looked for a .json with dev in its name \(as in dev-v1.1"
    ):
        read(source)
    with pytest.raises(SqueezeError, match=r"not public: evaluate with --split dev"):
        read(source, "test")
    with pytest.raises(SqueezeError, match="there is no directory"):
        read(str(tmp_path / "none"))
    with pytest.raises(UsageError, match=r"there is no split 'dve'. Did you mean 'dev'"):
        read(source, "dve")


def test_two_sets_in_one_directory_are_refused(tmp_path):
    for name in ("train-v1.1.json", "train-v2.0.json"):
        (tmp_path / name).write_text(json.dumps(GOOD))
    with pytest.raises(SqueezeError, match=r"2 files that could be train: train-v1.1.json, train-v2.0.json"):
        read(str(tmp_path), "train")
