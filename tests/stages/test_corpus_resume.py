"""`biosqueeze corpus` interrupted, resumed, and asked for again."""

import errno
from pathlib import Path
from typing import Any

import pytest

from biosqueeze.corpora import build
from tests.cli.run import Shell
from tests.corpora import sources
from tests.corpora.built import manifest_of


def test_a_recipe_continues_an_interrupted_corpus(
    shell: Shell, baseline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(f'[corpus]\ninputs = ["{baseline}"]\nworkers = 1\n')
    command = ("run", recipe, "--out", tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(build, "_decisions", interrupt)
        assert shell(*command).code == 130
    monkeypatch.setattr(build, "write_part", lambda *_, **__: pytest.fail("a part is read again"))
    result = shell(*command)
    assert result.code == 0, result.err
    assert manifest_of(tmp_path / "run" / "corpus")["articles"] == 122


def test_interrupted_run_goes_on(shell: Shell, baseline: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(build, "PART_BYTES", 1)
    whole, out = tmp_path / "whole", tmp_path / "out"
    command = ["corpus", str(baseline), "--workers", "1", "-o"]
    assert shell(*command, str(whole)).code == 0
    read = build.write_part
    done: list[int] = []

    def interrupted(part: build.Part, *args: Any, **options: Any) -> None:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(part.number)
        read(part, *args, **options)

    monkeypatch.setattr(build, "write_part", interrupted)
    said = shell(*command, str(out))
    assert (said.code, "--resume goes on from there" in said.err) == (130, True)
    assert not out.exists()
    refused = shell(*command, str(out))
    assert refused.code == 1
    assert "--resume" in refused.err
    done.clear()
    monkeypatch.setattr(build, "write_part", read)
    result = shell(*command, str(out), "--resume")
    assert result.code == 0, result.err
    assert "2 of 4 parts were read" in result.err
    assert manifest_of(out)["shards"] == manifest_of(whole)["shards"]
    assert not (tmp_path / "out.partial").exists()


def test_a_full_disk_names_out_and_resume(shell: Shell, baseline: Path, tmp_path: Path, monkeypatch: Any) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    command = ["corpus", str(baseline), "--workers", "1", "-o", str(tmp_path / "out")]
    with monkeypatch.context() as patch:
        patch.setattr(build, "write_shards", full)
        said = shell(*command)
    expected = f"the disk that holds {tmp_path / 'out'} is full; free some space, and repeat the command with --resume"
    assert (said.code, expected in " ".join(said.err.split())) == (1, True)
    assert shell(*command, "--resume").code == 0


def test_a_new_copy_of_a_damaged_file_is_read(shell: Shell, baseline: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(build, "PART_BYTES", 1)
    whole, out, damaged = tmp_path / "whole", tmp_path / "out", baseline / "pubmed1.xml.gz"
    command = ["corpus", str(baseline), "--workers", "1", "-o"]
    assert shell(*command, str(whole)).code == 0
    content = damaged.read_bytes()
    damaged.write_bytes(content[: len(content) // 2])
    assert shell(*command, str(out), "--strict").code == 1
    damaged.write_bytes(content)
    result = shell(*command, str(out), "--strict", "--resume")
    assert result.code == 0, result.err
    assert "1 of 4 parts were read" in result.err
    assert manifest_of(out)["shards"] == manifest_of(whole)["shards"]


def test_a_file_that_was_skipped_is_an_error_with_strict(
    shell: Shell, baseline: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    out, damaged = tmp_path / "out", baseline / "pubmed1.xml.gz"
    command = ["corpus", str(baseline), "--workers", "1", "-o", str(out)]
    damaged.write_bytes(damaged.read_bytes()[:-300])
    with monkeypatch.context() as patch:
        patch.setattr(build, "publish_directory", interrupt)
        assert shell(*command).code == 130
    strict = shell(*command, "--strict", "--resume")
    assert strict.code == 1
    assert f"{damaged}: " in strict.err
    assert not out.exists()
    assert shell(*command, "--resume").code == 0


def test_other_test_sentences_are_another_corpus(
    shell: Shell, baseline: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    tests = tmp_path / "data" / "test.txt"
    sources.packed(tests, b"A test sentence that nobody may see before the test.\n")
    command = ["corpus", str(baseline), "--against", str(tests.parent), "--workers", "1", "-o", str(tmp_path / "out")]
    with monkeypatch.context() as patch:
        patch.setattr(build, "publish_directory", interrupt)
        assert shell(*command).code == 130
    sources.packed(tests, f"{sources.abstract(1)}\n".encode())
    refused = shell(*command, "--resume")
    assert refused.code != 0
    assert "no interrupted run of these sources and options" in refused.err
    assert shell(*command, "--force").code == 0


def test_a_file_that_changed_is_read_again(shell: Shell, baseline: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(build, "PART_BYTES", 1)
    out = tmp_path / "out"
    command = ["corpus", str(baseline), "--workers", "1", "-o", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr(build, "publish_directory", interrupt)
        assert shell(*command).code == 130
    sources.pubmed(baseline / "pubmed0.xml.gz", [sources.citation(1, "One article alone.")])
    result = shell(*command, "--resume")
    assert result.code == 0, result.err
    assert "3 of 4 parts were read" in result.err
    assert manifest_of(out)["articles"] == 83


def test_an_output_inside_its_source_is_continued(
    shell: Shell, baseline: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    command = ["corpus", str(baseline), "--workers", "1", "-o", str(baseline / "corpus")]
    with monkeypatch.context() as patch:
        patch.setattr(build, "_decisions", interrupt)
        assert shell(*command).code == 130
    result = shell(*command, "--resume")
    assert result.code == 0, result.err
    assert manifest_of(baseline / "corpus")["articles"] == 122


def test_no_file_of_the_interrupted_run_is_left(shell: Shell, tmp_path: Path, monkeypatch: Any) -> None:
    tests, source, out = tmp_path / "data" / "test.txt", tmp_path / "a.xml", tmp_path / "out"
    sources.packed(tests, f"{sources.abstract(1)}\n".encode())
    sources.pubmed(source, [sources.citation(1, sources.abstract(1)), sources.citation(2, sources.abstract(2))])
    command = ["corpus", str(source), "--against", str(tests.parent), "--workers", "1", "-o", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr(build, "publish_directory", interrupt)
        assert shell(*command).code == 130
    sources.pubmed(source, [sources.citation(2, sources.abstract(2))])
    assert shell(*command, "--resume").code == 0
    assert manifest_of(out)["dropped"] == {}
    assert not (out / "contaminated.tsv").exists()


@pytest.mark.parametrize("renamed", [False, True])
def test_finished_corpus_is_kept(shell: Shell, baseline: Path, tmp_path: Path, monkeypatch: Any, renamed: bool) -> None:
    out = tmp_path / "out"
    command = ["corpus", str(baseline), "--workers", "1", "-o", str(out)]
    publish = build.publish_directory

    def interrupted(*paths: Path) -> None:
        if renamed:
            publish(*paths)
        interrupt()

    with monkeypatch.context() as patch:
        patch.setattr(build, "publish_directory", interrupted)
        assert shell(*command).code == 130
    made = out if renamed else tmp_path / "out.partial" / "corpus"
    before = {path.name: path.stat().st_ino for path in made.iterdir()}
    again = shell(*command) if renamed else shell(*command, "--resume")
    assert again.code == renamed, again.err
    assert {path.name: path.stat().st_ino for path in out.iterdir()} == before
    assert manifest_of(out)["train"]["documents"] == 119


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_force_starts_over(shell: Shell, baseline: Path, tmp_path: Path, monkeypatch: Any) -> None:
    command = ["corpus", str(baseline), "--workers", "1", "-o", str(tmp_path / "out")]
    with monkeypatch.context() as patch:
        patch.setattr(build, "_decisions", interrupt)
        assert shell(*command).code == 130
    result = shell(*command, "--force")
    assert result.code == 0
    assert "were read before" not in result.err
    assert not (tmp_path / "out.partial").exists()
