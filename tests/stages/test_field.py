"""--field names the field of a record; no command takes it silently where it reads none."""

import pytest

from tests import pico
from tests.cli.run import Shell


@pytest.mark.parametrize(
    "command",
    [
        "distill --teacher model --student distil --corpus text.txt --field abstract --steps 1 --out out",
        "pretrain model --corpus text.txt --field abstract --steps 1 --out out",
        "vocab text.txt --field abstract --out out",
        "vocab compare model --corpus text.txt --field abstract",
        "corpus text.txt --field abstract --out out",
        "corpus inspect text.txt --field abstract",
        "shrink model --vocab-keep text.txt --field abstract --out out",
        "shrink model --ffn 32 --calibration text.txt --field abstract --out out",
        "quantize model --calibration text.txt --calibration-field abstract --out out",
    ],
)
def test_a_field_of_plain_text_is_refused(command, tmp_path, shell: Shell, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    pico.save("bert", tmp_path / "model")
    pico.write_sentences(tmp_path / "text.txt", 20)
    ran = shell(command)
    assert ran.code == 2
    assert "field is for JSON lines" in ran.err and "leave it out" in ran.err
    assert not (tmp_path / "out").exists()
