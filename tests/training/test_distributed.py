"""Training in two processes, started by Accelerate's launcher: one checkpoint, the same losses, exact resume."""

import json
import os
import random
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest

from tests import pico
from tests.cli.run import Background, Shell, start
from tests.kills import killed, renames_to
from tests.metrics_log import log_of
from tests.ports import free_port

LONG = 300.0  # time-out in seconds; ten suffice on an unloaded machine
QUICK = ("--precision", "fp32", "--max-length", 32, "--lr", "1e-3")


@dataclass(frozen=True)
class Work:
    """Encoder and data of a training, and the directory of its outputs."""

    root: Path
    encoder: Path
    data: Path

    def words(self, out: str, *more: object) -> list[str]:
        given = ("finetune", self.encoder, "--data", self.data, "--out", self.root / out, *QUICK, *more)
        return [str(word) for word in given]


def launched(words: list[str]) -> "subprocess.Popen[str]":
    """Start `accelerate launch` with two processes."""
    launcher = "accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no"
    started = f"{launcher} --dynamo_backend no --main_process_port {free_port()} -m biosqueeze"
    known = {k: v for k, v in os.environ.items() if not k.startswith("BIOSQUEEZE_")}
    return subprocess.Popen(
        [sys.executable, "-m", *started.split(), *words],
        env={**known, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=LONG)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, err


def write_splits(folder: Path, **counts: int) -> Path:
    """Write splits of sentences whose diseases end in -tis; each sentence fits into one window."""
    folder.mkdir()
    rng = random.Random(0)
    for split, count in counts.items():
        rows = []
        for _ in range(count):
            words = rng.choices(pico.words(), k=rng.randint(2, 6))
            rows += [f"{word}\t{'B-Disease' if word.endswith('tis') else 'O'}" for word in (*words, "hepatis")] + [""]
        (folder / f"{split}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """Seventeen sentences: the last batch of an epoch has one, so one of two processes gets an empty batch."""
    root = tmp_path_factory.mktemp("distributed")
    return Work(root, pico.save("bert", root / "encoder"), write_splits(root / "data", train=17, dev=6, test=2))


def without_dropout(encoder: Path) -> None:
    config = json.loads((encoder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (encoder / "config.json").write_text(json.dumps(config))


@pytest.mark.slow
def test_two_processes_equal_one_with_twice_the_batch(work: Work, shell: Shell) -> None:
    plain = Work(work.root, pico.save("bert", work.root / "plain"), work.data)
    without_dropout(plain.encoder)
    shared = ("--accumulate", 2, "--steps", 9)
    code, out, err = ended(launched(plain.words("two", "--batch-size", 2, *shared)))
    assert code == 0, err
    assert out == f"{work.root / 'two'}\n"
    assert err.count("the best on dev") == 1
    assert shell(*plain.words("one", "--batch-size", 4, *shared)).code == 0
    one, two = log_of(work.root / "one"), log_of(work.root / "two")
    assert [line["step"] for line in two] == [line["step"] for line in one]
    for alone, together in zip(one, two, strict=True):
        if "loss" in alone:
            assert together["loss"] == pytest.approx(alone["loss"], rel=1e-4)
            assert (together["tokens"], together["lr"]) == (alone["tokens"], alone["lr"])
        else:
            assert together["dev"] == alone["dev"]
    manifest = json.loads((work.root / "two" / "biosqueeze.json").read_text())
    assert manifest["metrics"]["processes"] == 2
    assert not (work.root / "two.partial").exists()


@dataclass(frozen=True)
class Pair:
    """Two forked processes with the environment that a launcher sets."""

    processes: tuple[Background, Background]

    @property
    def logs(self) -> list[str]:
        return [process.log.read_text() for process in self.processes]

    def ended(self) -> list[int]:
        return [process.end() for process in self.processes]


def forked(work: Work, words: list[str]) -> Pair:
    port = free_port()
    place = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    first, second = (
        start(*words, log=work.root / f"log-{rank}", environment={**place, "RANK": rank, "LOCAL_RANK": rank})
        for rank in range(2)
    )
    return Pair((first, second))


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["finetune", "distill"])
def test_ctrl_c_in_two_processes_resumes_exactly(stage: str, work: Work, shell: Shell) -> None:
    """Both stages; the distillation has masking, packed blocks and projections."""
    text = work.root / "some.txt"
    text.write_text("\n".join(pico.sentences(40)) + "\n", encoding="utf-8")
    with mock.patch.object(pico, "HIDDEN", 2 * pico.HIDDEN):
        student = pico.save("bert", work.root / "wide", seed=1)
    taught = ("distill", student, "--teacher", work.encoder, "--corpus", text, *QUICK)
    shared = ("--batch-size", 2, "--steps", 24, "--workers", 2)

    def words(out: str, *more: object) -> list[str]:
        if stage == "finetune":
            return work.words(out, *shared, "--eval-every", 8, *more)
        return [str(word) for word in (*taught, "--out", work.root / out, *shared, *more)]

    if stage == "distill":  # prepare the corpus before the fork, which the tokenizer's threads do not survive
        assert shell(*words("prepared"), "--steps", 1).code == 0
    whole, parted = f"whole-{stage}", f"parted-{stage}"
    assert forked(work, words(whole)).ended() == [0, 0]
    pair = forked(work, words(parted))
    log = work.root / f"{parted}.partial" / "metrics.jsonl"
    pair.processes[0].wait_for(lambda: log.is_file() and log.read_text().count("\n") >= 3)
    for _ in range(2):  # once from the terminal, once from the launcher
        for background in pair.processes:
            os.killpg(background.process.pid or 0, signal.SIGINT)
    assert pair.ended() == [130, 130]
    assert pair.logs[0].count("--resume goes on from there") == 1
    assert "interrupted" not in pair.logs[1]
    (state,) = (work.root / f"{parted}.partial").glob("state-*")
    assert 3 <= int(state.name.partition("-")[2]) < 24
    pair = forked(work, words(parted, "--resume"))
    assert pair.ended() == [0, 0], pair.logs[0]
    assert log_of(work.root / parted) == log_of(work.root / whole)
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (work.root / parted / name).read_bytes() == (work.root / whole / name).read_bytes()


@pytest.mark.parametrize("sharded", [False, True])
def test_distillation_in_two_processes(
    sharded: bool, work: Work, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = work.root / "text.txt"
    text.write_text("\n".join(pico.sentences(21)) + "\n", encoding="utf-8")
    given = ("distill", "--teacher", work.encoder, "--student", "distil", "--corpus", text, "--dropout", 0, *QUICK)

    def words(out: str, size: int) -> list[str]:
        options = ("--steps", 8, "--batch-size", size, "--force")
        return [str(word) for word in (*given, "--out", work.root / out, *options)]

    assert shell(*words("distilled-by-one", 4)).code == 0
    if sharded:
        monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    pair = forked(work, words("distilled-by-two", 2))
    assert pair.ended() == [0, 0], pair.logs[0]
    held = re.search(r"each process holds ([\d,]+) of ([\d,]+) parameters", pair.logs[0])
    assert (held is not None) == sharded
    if held:
        part, whole = (int(number.replace(",", "")) for number in held.groups())
        layers = sum(p.numel() for p in pico.model_of("bert", 9).base_model.encoder.parameters())
        assert whole - part == layers // 2
    one, two = log_of(work.root / "distilled-by-one"), log_of(work.root / "distilled-by-two")
    assert len(two) == len(one) == 8
    for alone, together in zip(one, two, strict=True):
        assert together == pytest.approx(alone, rel=1e-4)


@pytest.fixture
def second_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")


@pytest.mark.usefixtures("second_of_two")
def test_sharding_is_refused_without_a_live_teacher(work: Work, monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    headless = pico.save("bert", work.root / "headless", "base")
    given = ("distill", "--student", "distil", "--steps", 1, *QUICK, "--teacher")
    for words in (
        (*given, work.encoder, "--cache-teacher", work.root / "answers"),
        (*given, headless, "--fit-head", 1),
        (*given, work.encoder, "--auto-batch"),
        (*given, work.encoder, "--loss", "mlm"),
        work.words("sharded"),
    ):
        said = shell(*words)
        assert (said.code, "launch" in said.err and "without it" in said.err) == (2, True), said.err


@pytest.mark.usefixtures("second_of_two")
def test_other_commands_refuse_several_processes(work: Work, monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    assert shell("shrink", work.encoder, "--layers", 2).err == ""  # the main process prints the error
    monkeypatch.setenv("RANK", "0")
    for words in (("shrink", work.encoder, "--layers", 2), ("run", "recipe.toml")):
        said = shell(*words)
        assert (said.code, said.out) == (2, "")
        assert f"`{words[0]}`" in said.err and "without the launcher" in said.err
    said = shell(*work.words("search", "--seeds", 2))
    assert (said.code, "without the launcher" in said.err) == (2, True)


@pytest.mark.usefixtures("second_of_two")
def test_processes_that_cannot_be_joined_fail(work: Work, monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr("biosqueeze.system.processes._COUNTS", ("SOME_SIZE",))
    monkeypatch.setenv("SOME_SIZE", "2")
    monkeypatch.delenv("WORLD_SIZE")
    said = shell(*work.words("apart", "--steps", 1))
    assert said.code == 1
    assert "cannot be joined" in said.err
    assert not (work.root / "apart").exists()


@pytest.mark.parametrize("more", [(), ("--resume", "auto")], ids=["repeated", "auto"])
def test_two_processes_take_over_what_is_finished(more: tuple[str, ...], work: Work) -> None:
    name = f"taken-{len(more)}"
    words = work.words(name, "--batch-size", 2, "--steps", 4, "--save-every", 2)
    out = work.root / name
    killed(*words, at=renames_to(out), log=work.root / "log")
    written = (work.root / f"{name}.partial" / "model.safetensors").read_bytes()
    pair = forked(work, [*words, *more])
    assert pair.ended() == [0, 0], pair.logs
    assert "was finished by an earlier run" in pair.logs[0]
    assert (out / "model.safetensors").read_bytes() == written
    assert not list(out.glob("state-*"))


@pytest.mark.slow
def test_a_lost_process_is_explained(work: Work) -> None:
    pair = forked(work, work.words("lost", "--batch-size", 2, "--steps", 100_000, "--save-every", 5))
    pair.processes[0].wait_for(lambda: list((work.root / "lost.partial").glob("state-*")))
    pair.processes[0].end(signal.SIGKILL)
    assert pair.processes[1].end() == 1
    assert pair.logs[1].splitlines()[-1].endswith("another process of this training has ended; see its message")
