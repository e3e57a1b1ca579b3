"""What users of the stage distill get wrong."""

from pathlib import Path

import pytest

from tests.cli.run import Shell
from tests.stages.distilling import QUICK


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((), 2, "give either CHECKPOINT (or - in a pipe) or --student"),
        (("TEACHER", "--student", "tiny"), 2, "not both"),
        (("--student", "tiyn"), 2, "Did you mean 'tiny'"),
        (("--student", "distil", "--loss", "kll=1"), 2, "Did you mean 'kl'"),
        (("--student", "distil", "--loss", "kl="), 2, "NAME=WEIGHT"),
        (("--student", "distil", "--layer-map", "top", "--loss", "kl"), 2, "--layer-map has no effect"),
        (("--student", "distil", "--layer-map", "top", "--loss", "embedding"), 2, "--layer-map has no effect"),
        (("--student", "distil", "--layer-weights", "1,2", "--loss", "cosine"), 2, "--layer-weights has no effect"),
        (("--student", "distil", "--layer-map", "1:9"), 2, "possible for 2 and 4 layers"),
        (("--student", "distil", "--layer-weights", "1,1,1"), 2, "expected"),
        (("--student", "tiny", "--relation-heads", "5", "--loss", "minilmv2"), 2, "divide"),
        (("--student", "tiny", "--loss", "attention"), 2, "head by head"),
        (("--student", "distil", "--warm-start", "finetune"), 2, "--data"),
        (("--student", "distil", "--warm-epochs", "2"), 2, "--warm-start finetune"),
        (("--student", "distil", "--teacher-weights", "1,2"), 2, "one for each --teacher"),
        (("--student", "distil", "--teacher-weights", "2"), 2, "no effect with one --teacher"),
        (("--student", "distil", "--loss", "kl=-1"), 2, "positive weight"),
        (
            ("--student", "distil", "--loss", "hard=1"),
            2,
            "hard does not fit, because plain text has no labels",
        ),
        (("--student", "distil", "--loss", "hard=2", "--loss", "kl"), 2, "leave it out: --loss kl=1"),
        (("--student", "distil", "--data", "somewhere"), 2, "biosqueeze finetune"),
        (("--student", "distil", "--resume"), 1, "nothing to resume"),
        (("--student", "distil", "--temperature", "0"), 2, "--temperature must be above 0 and at most 1,000, not 0"),
        (("--student", "distil", "--temperature", "2", "--loss", "cosine"), 2, "--temperature has no effect"),
        (
            ("--student", "distil", "--relation-heads", "0", "--loss", "minilmv2"),
            2,
            "must be at least 1, not 0",
        ),
        (("--student", "distil", "--unlabelled", "2"), 2, "--unlabelled needs --data; give --data PATH too"),
        (("--student", "distil", "--epochs", "1e300"), 2, "--epochs must be above 0 and at most 1,000,000"),
        (("--student", "distil", "--seed", "-1"), 2, "--seed must be at least 0 and at most 2,147,483,647, not -1"),
        (("--student", "distil", "--mask-rate", "1.5"), 2, "--mask-rate"),
        (("--student", "distil", "--warmup", "2"), 2, "--warmup must be at least 0 and at most 1, not 2"),
        (("--student", "distil", "--accumulate", "0"), 2, "--accumulate must be at least 1"),
    ],
)
def test_usage_errors(
    words: tuple[str, ...], code: int, says: str, pico_bert: Path, text: Path, tmp_path: Path, shell: Shell
) -> None:
    given = [str(pico_bert) if word == "TEACHER" else word for word in words]
    result = shell("distill", *given, "--teacher", pico_bert, "--corpus", text, "--out", "out", "--steps", 1, *QUICK)
    assert result.code == code, result.err
    assert says in result.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--mask-rate", "0.3"), "--mask-rate is for masked text"),
        (("--mask-unit", "word"), "--mask-unit is for masked text"),
        (("--maskings", "2"), "--maskings is for masked text"),
        (("--loss", "compact"), "leave it out: --loss hidden-cosine=3 --loss attention-kl-mean=3 --loss kl=5"),
        (("--unlabelled", "2"), "--unlabelled needs --corpus; give --corpus PATH too"),
        (("--field", "abstract"), "--field needs --corpus"),
        (("--corpus", "demo:text", "--types", "Disease"), "--types needs --data"),
        (("--corpus", "demo:text", "--dev-share", "0.5"), "--dev-share needs --data"),
        (("--corpus", "demo:text", "--column", "word=a"), "--column is about labelled examples"),
    ],
)
def test_unused_options_of_a_task(words: tuple[str, ...], says: str, tuned: Path, tags: Path, shell: Shell) -> None:
    data = () if "--corpus" in words else ("--data", tags)
    result = shell("distill --teacher", tuned, "--student", "distil", *data, "--out", "out", *words)
    assert (result.code, says in result.err) == (2, True), result.err


def test_a_nan_stops_the_run_and_leaves_nothing(pico_bert: Path, text: Path, shell: Shell) -> None:
    result = shell(
        "distill --teacher", pico_bert, "--student", "distil", "--corpus", text, "--out", "out", "--lr", "1e30",
        "--warmup", "0", "--steps", 20, *QUICK,
    )  # fmt: skip
    assert result.code == 1
    assert "NaN or infinite at step" in result.err
    assert "--lr" in result.err
    assert not Path("out").exists()
    assert not Path("out.partial").exists()
