"""What users get wrong, through the command line: one line that names cause and way out, and nothing left behind."""

import json
import os
import pickle
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import pico
from tests.cli.run import Said, Shell
from tests.layouts import edit_json

TAGS = "sepsis\tB-Disease\nsyndrome\tI-Disease\n,\tO\n\nthe\tO\nlupus\tB-Disease\n"
# Every command that opens a checkpoint, with what it needs beside it.
OPENING = {
    "shrink": ("--layers", "2", "--out", "out"),
    "finetune": ("--data", "tags", "--out", "out", "--steps", "1"),
    "distill": ("--teacher", "CKPT", "--corpus", "text.txt", "--out", "out", "--steps", "1"),
    "export": ("--out", "out"),
    "quantize": ("--out", "out"),
    "evaluate": ("--data", "tags"),
    "bench": ("--batch-size", "1", "--length", "8", "--rounds", "1", "--seconds", "0.01"),
    "inspect": (),
}
WRITING = tuple(name for name, words in OPENING.items() if "--out" in words)


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """A working directory with tagged data in tags/ and a corpus in text.txt."""
    (tmp_path / "tags").mkdir()
    for split in ("train", "dev", "test"):
        (tmp_path / "tags" / f"{split}.tsv").write_text(TAGS)
    (tmp_path / "text.txt").write_text("\n".join(pico.sentences(40)))
    return tmp_path


@pytest.fixture
def ask(shell: Shell, inputs: Path) -> Callable[..., Said]:
    """Run a command on a checkpoint: it must fail, explain itself in its last line, and leave no file behind."""

    def run(command: str, checkpoint: object, *more: object, code: int = 1, says: str) -> Said:
        before = sorted(inputs.rglob("*"))
        words = [str(checkpoint) if word == "CKPT" else word for word in OPENING[command]]
        said = shell(command, checkpoint, *words, *more)
        assert said.code == code, said.err
        assert said.out == ""
        *chatter, error = said.err.strip().splitlines()
        assert error.startswith("error: ")
        assert not any(line.startswith(("error", "bug", "Traceback", "Usage")) for line in chatter)
        assert says in error
        assert sorted(inputs.rglob("*")) == before
        return said

    return run


# ------------------------------------------------------------------ checkpoints


@pytest.mark.parametrize("command", OPENING)
def test_no_checkpoint(command: str, ask: Callable[..., Said]) -> None:
    ask(command, "./nowhere", says="there is no directory ./nowhere; check the path")


def test_no_such_home(ask: Callable[..., Said]) -> None:
    ask(
        "inspect",
        "~nobody-of-this-name/model",
        says="begins with ~, and there is no such home directory; write it in full",
    )


@pytest.mark.parametrize("command", OPENING)
def test_no_config(command: str, pico_ner: Path, copy_of: Callable[[Path], Path], ask: Callable[..., Said]) -> None:
    path = copy_of(pico_ner)
    (path / "config.json").unlink()
    ask(command, path, says=f"{path} has no config.json, so it is not a checkpoint; name the directory")


def test_directory_of_checkpoints(pico_ner: Path, tmp_path: Path, ask: Callable[..., Said]) -> None:
    for name in ("2-layers", "4-layers"):
        shutil.copytree(pico_ner, tmp_path / "family" / name)
    listed = ", ".join(str(tmp_path / "family" / name) for name in ("2-layers", "4-layers"))
    ask("inspect", tmp_path / "family", says=f"it is not a checkpoint; name one of those in it: {listed}")


@pytest.mark.parametrize("command", OPENING)
def test_weights_cut_short(
    command: str, pico_ner: Path, copy_of: Callable[[Path], Path], ask: Callable[..., Said]
) -> None:
    file = copy_of(pico_ner) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    said = ask(command, file.parent, says=f"{file} is damaged or cut short; fetch or copy it again")
    assert len(said.err.splitlines()) == 1


class _Touch:
    """Unpickled, it runs a shell command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("command", OPENING)
def test_pickle_that_would_run_code(
    command: str, pico_ner: Path, copy_of: Callable[[Path], Path], ask: Callable[..., Said], tmp_path: Path
) -> None:
    path = copy_of(pico_ner)
    (path / "model.safetensors").unlink()
    (path / "pytorch_model.bin").write_bytes(pickle.dumps({"a": _Touch(tmp_path / "ran")}, protocol=2))
    ask(command, path, says="would run code when opened")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("command", [name for name in OPENING if name not in ("bench", "inspect")])
def test_tokenizer_of_another_size(
    command: str, pico_ner: Path, copy_of: Callable[[Path], Path], ask: Callable[..., Said]
) -> None:
    path = copy_of(pico_ner)
    content = json.loads((path / "tokenizer.json").read_text())
    pieces = content["model"]["vocab"]
    pieces["newpiece"] = len(pieces)
    (path / "tokenizer.json").write_text(json.dumps(content))
    ask(command, path, says="they are of different models; copy the tokenizer files of this model")


@pytest.mark.parametrize("command", ["shrink", "export", "finetune"])
def test_heads_that_do_not_divide(
    command: str, pico_ner: Path, copy_of: Callable[[Path], Path], ask: Callable[..., Said]
) -> None:
    path = copy_of(pico_ner)
    edit_json(path / "config.json", num_attention_heads=5)
    ask(command, path, says="hidden_size (32) is not a multiple of num_attention_heads (5); correct that value")


@pytest.mark.parametrize(("cut", "says"), [("9", "from 1 to 4"), ("0,7", "the model has layers 0 to 3")])
def test_layers_out_of_range(cut: str, says: str, pico_bert: Path, ask: Callable[..., Said]) -> None:
    ask("shrink", pico_bert, "--layers", cut, code=2, says=says)


@pytest.mark.parametrize("command", WRITING)
def test_an_output_that_exists(command: str, pico_ner: Path, inputs: Path, ask: Callable[..., Said]) -> None:
    (inputs / "out").mkdir()
    (inputs / "out" / "config.json").write_text("{}")
    ask(command, pico_ner, says="out exists already; give --force to replace it, or another name with --out")


@pytest.mark.parametrize("command", WRITING)
def test_an_output_below_a_file(command: str, pico_ner: Path, ask: Callable[..., Said]) -> None:
    ask(command, pico_ner, "--out", "text.txt/out", says="a file where a directory was expected")


def test_a_removed_current_directory_is_explained(
    pico_ner: Path, tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(pico_ner, tmp_path / "model")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()
    said = shell("inspect", "../model")
    assert (said.code, said.out) == (1, "")
    assert "the current directory was removed" in said.err


@pytest.mark.parametrize("command", OPENING)
def test_nothing_on_standard_input(command: str, ask: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: PTH123, SIM115
    monkeypatch.setitem(OPENING, "distill", ("--teacher", "t", "--corpus", "text.txt", "--out", "out"))
    ask(command, "-", code=2, says="did the command before it fail?")


# ------------------------------------------------------------------ data


@pytest.mark.parametrize(
    ("split", "content", "says"),
    [
        ("train", "sepsis\tB-Disease\nsyndrome\n", "train.tsv:2: no tag beside 'syndrome'"),
        ("dev", "the\tO\nsyndrome\tI-Disease\n", "dev.tsv:2: 'I-Disease' at 'syndrome' follows 'O'"),
        ("dev", "aspirin\tB-Drug\n", "dev.tsv:1: the label 'B-Drug' is none of train's"),
        ("train", "", "train.tsv is empty"),
        ("dev", "caf\u00e9\tO\n".encode("latin-1"), "dev.tsv:1: not UTF-8 text (byte 0xe9 at column 4); convert it"),
    ],
)
def test_tagged_data(
    split: str, content: str | bytes, says: str, pico_bert: Path, inputs: Path, ask: Callable[..., Said]
) -> None:
    data = content if isinstance(content, bytes) else content.encode()
    (inputs / "tags" / f"{split}.tsv").write_bytes(data)
    assert len(ask("finetune", pico_bert, says=says).err.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("aspirin\tB-Drug\n", "has the labels B-Drug, but"),
        ("the\tO\nsyndrome\tI-Disease\nlupus\tB-Disease\n", "test.tsv:2: 'I-Disease' at 'syndrome' follows 'O'"),
    ],
)
def test_a_test_split_that_train_did_not_know(
    content: str, says: str, pico_ner: Path, inputs: Path, ask: Callable[..., Said]
) -> None:
    (inputs / "tags" / "test.tsv").write_text(content)
    ask("evaluate", pico_ner, says=says)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("text.txt", b"", "text.txt is empty: no line of it holds text"),
        ("text.txt", b"\n \r\n", "text.txt is empty: no line of it holds text"),
        ("text.txt", b"fine\ncaf\xe9\n", "text.txt:2: not UTF-8 text (byte 0xe9 at column 4); convert it first: iconv"),
        ("none.txt", None, "there is no corpus none.txt; give a text file"),
    ],
)
def test_corpora(
    name: str, content: bytes | None, says: str, pico_bert: Path, inputs: Path, ask: Callable[..., Said]
) -> None:
    if content is not None:
        (inputs / name).write_bytes(content)
    said = ask("distill", pico_bert, "--corpus", name, says=says)
    assert content is not None or len(said.err.splitlines()) == 1  # a missing one is said before any work


def test_a_missing_corpus_is_in_the_plan(pico_bert: Path, ask: Callable[..., Said]) -> None:
    ask("distill", pico_bert, "--corpus", "none.txt", "--dry-run", says="there is no corpus none.txt")


def test_windows_line_ends_train_the_same(pico_bert: Path, inputs: Path, shell: Shell) -> None:
    text = (inputs / "text.txt").read_bytes()
    (inputs / "windows.txt").write_bytes(text.replace(b"\n", b"\r\n"))
    words = ("--teacher", pico_bert, "--student", "distil", "--steps", 2, "--precision", "fp32", "--json")
    one, two = (shell("distill", *words, "--corpus", name, "--out", name[:3]) for name in ("text.txt", "windows.txt"))
    assert (one.code, two.code) == (0, 0), one.err + two.err
    losses = [json.loads(said.out)["metrics"]["last_losses"] for said in (one, two)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("command", ["finetune", "distill"])
def test_a_loss_that_is_no_number(command: str, pico_bert: Path, ask: Callable[..., Said]) -> None:
    flags = ("--lr", "1e30", "--warmup", "0", "--steps", "9", "--precision", "fp32", "--max-length", "32")
    ask(command, pico_bert, *flags, says="the loss is NaN or infinite at step")


# ------------------------------------------------------------------ a full disk


@pytest.fixture
def disk(inputs: Path) -> Iterator[Callable[[str], Path]]:
    """`disk("100k")` is a file system of that size; only root may mount one."""
    path = inputs / "disk"
    path.mkdir()

    def mount(size: str) -> Path:
        words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
        if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode != 0:
            pytest.skip("mounting a tmpfs is not allowed here")
        return path

    yield mount
    subprocess.run(["umount", str(path)], check=False, capture_output=True)


@pytest.mark.parametrize("command", WRITING)
def test_a_full_disk(command: str, pico_ner: Path, disk: Callable[[str], Path], ask: Callable[..., Said]) -> None:
    ask(command, pico_ner, "--out", disk("100k") / "out", says="is full; free some space or give --out another place")


def test_a_disk_too_full_for_a_result(
    pico_ner: Path, disk: Callable[[str], Path], copy_of: Callable[[Path], Path], ask: Callable[..., Said]
) -> None:
    source, path = copy_of(pico_ner), disk("300k")
    subprocess.run(["cp", "-r", str(source), str(path / "ner")], check=True)
    (path / "ner" / "results").mkdir(exist_ok=True)
    room = os.statvfs(path)
    (path / "filling").write_bytes(b"x" * room.f_bavail * room.f_bsize)
    ask("evaluate", path / "ner", says="No space left on device; free some space")


# ------------------------------------------------------------------ recipes and options


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[shrink]\nlayer = 3", "[shrink] has an unknown key 'layer'. Did you mean 'layers'?"),
        ('[shrink]\ncheckpoint = "BERT"\nlayers = "2"\n[distill]\nteacher = "BERT"\nsteps = "x"', "[distill]: Invalid"),
        ('[shrink]\ncheckpoint = "BERT"\nlayers = "2"\n[distill]\nteacher = "@shirnk"', "Did you mean 'shrink'?"),
    ],
)
@pytest.mark.parametrize("mode", [(), ("--dry-run",)])
def test_a_wrong_recipe_runs_nothing(
    text: str, says: str, mode: tuple[str, ...], pico_bert: Path, inputs: Path, shell: Shell
) -> None:
    (inputs / "r.toml").write_text(text.replace("BERT", str(pico_bert)))
    said = shell("run r.toml", *mode)
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert len(said.err.splitlines()) == 1
    assert not (inputs / "r-run").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--layer", "2"), "No such option '--layer'. Did you mean '--layers'? (see biosqueeze shrink --help)"),
        (("--ffn", "many"), "'many' is not a valid integer. (see biosqueeze shrink --help)"),
        (("--ffn",), "Option '--ffn' requires an argument."),
    ],
)
def test_a_wrong_option_is_one_line(words: tuple[str, ...], says: str, pico_bert: Path, shell: Shell) -> None:
    said = shell("shrink", pico_bert, *words)
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert said.err.startswith("error: ")
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize("flag", ["CHECKPOINT", "--data", "--backend"])
def test_an_empty_name_is_explained(flag: str, pico_ner: Path, shell: Shell) -> None:
    words = ("", "--data", "demo:ner") if flag == "CHECKPOINT" else (pico_ner, flag, "")
    for extra in ((), ("--dry-run",)):
        said = shell("evaluate", *words, *extra)
        assert (said.code, said.err) == (2, f"error: {flag} is empty; is a shell variable not set?\n")


@pytest.mark.parametrize(("command", "option"), [("finetune", "--data"), ("distill", "--teacher")])
def test_a_required_option_is_missed(command: str, option: str, pico_bert: Path, inputs: Path, shell: Shell) -> None:
    said = shell(command, pico_bert)
    assert (said.code, said.out) == (2, "")
    assert said.err == f"error: Missing option '{option}'. (see biosqueeze {command} --help)\n"
    (inputs / "r.toml").write_text(f'[{command}]\ncheckpoint = "{pico_bert}"\n')
    assert f"[{command}]: Missing option '{option}'." in shell("run r.toml").err


# ------------------------------------------------------------------ wild numbers and depths in data

WILD = {
    "label.jsonl": ("classification", '{"text": "a b", "label": INT}'),
    "deep.jsonl": ("classification", '{"text": "a b", "label": DEEP}'),
    "score.jsonl": ("similarity", '{"sentence1": "a b", "sentence2": "b", "score": LONG}'),
    "scores.csv": ("similarity", "sentence1,sentence2,score\na,b,INT"),
    "offset.jsonl": ("ner", '{"text": "a b", "entities": [[0, LONG, "X"]]}'),
    "offset.txt": ("ner", "1|t|A b\n1|a|c\n1\t0\tINT\tA\tX"),
    "answer.jsonl": ("qa", '{"question": "q", "context": "c", "answers": {"text": ["c"], "answer_start": [LONG]}}'),
    "items.json": ("ner", '{"documents": [{"id": "1", "passages": [{"offset": INT}]}]}'),
    "list.json": ("nli", "DEEP"),
}


@pytest.mark.parametrize("name", WILD)
def test_wild_numbers_in_data_are_explained(name: str, shell: Shell, tmp_path: Path) -> None:
    task, text = WILD[name]
    for word, value in (("INT", "9" * 5000), ("LONG", "9" * 400), ("DEEP", "[" * 5000 + "]" * 5000)):
        text = text.replace(word, value)
    (tmp_path / "wild").mkdir()
    for split in ("train", "dev"):
        (tmp_path / "wild" / f"{split}{Path(name).suffix}").write_text(f"{text}\n")
    said = shell("tasks inspect wild --task", task)
    assert said.code == 1, said.err
    assert said.err.splitlines()[-1].startswith("error: ")


def test_labels_of_5000_digits_are_names(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "wild").mkdir()
    for split in ("train", "dev"):
        (tmp_path / "wild" / f"{split}.csv").write_text(f"text,label\n{split} a,{'9' * 5000}\n{split} b,1\n")
    assert shell("tasks inspect wild --task classification").code == 0


def test_the_end_of_a_file_is_no_interruption(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_options: object) -> None:
        raise EOFError("No data left in file")

    monkeypatch.setattr("biosqueeze.stages.students.run", run)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = shell("students")
    assert result.code == 3 and "bug: EOFError: No data left in file" in result.err, result.err
