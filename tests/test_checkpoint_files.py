"""Files of a checkpoint are regular ones, links stay within it, and a shard index names files beside it."""

import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.checkpoint_files import check_files, weight_files
from biosqueeze.errors import SqueezeError
from tests.cli.run import Shell


def link(name: str, target: str) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        (path / name).unlink(missing_ok=True)
        (path / name).symlink_to(target)

    return replace


def pipe(name: str) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        (path / name).unlink(missing_ok=True)
        os.mkfifo(path / name)

    return replace


def directory(name: str) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        (path / name).unlink(missing_ok=True)
        (path / name).mkdir(parents=True)

    return replace


CROOKED = {
    "a file outside": (link("secret.txt", "../secret"), "secret.txt is a link to ../secret, outside of the checkpoint"),
    "an absolute link": (link("vocab.txt", "/etc/hostname"), "outside of the checkpoint, and is not followed; copy"),
    "a device": (link("model.safetensors", "/dev/zero"), "model.safetensors is a link to /dev/zero, outside"),
    "no target": (
        link("vocab.txt", "nowhere"),
        "vocab.txt is a link to nowhere, where there is no file; copy the file",
    ),
    "a link to itself": (link("vocab.txt", "vocab.txt"), "vocab.txt is a link to vocab.txt, where there is no file"),
    "a loop of directories": (link("onnx", "."), "onnx is a link to a directory (.), which is not followed; copy the"),
    "a directory elsewhere": (
        link("results", "/etc"),
        "results is a link to a directory (/etc), which is not followed",
    ),
    "weights that are a pipe": (pipe("model.safetensors"), "model.safetensors is a named pipe, a regular file was"),
    "a config that is a pipe": (pipe("config.json"), "config.json is a named pipe, a regular file was expected"),
    "an extra pipe": (pipe("extra"), "extra is a named pipe, a regular file was expected; remove it"),
    "weights that are a directory": (
        directory("model.safetensors"),
        "model.safetensors is a directory, a regular file",
    ),
    "too many directories": (directory("onnx" + "/a" * 20), "lies deeper than 16 directories; remove"),
}


@pytest.mark.parametrize("case", CROOKED)
def test_what_is_no_file_of_the_checkpoint(case: str, pico_ner: Path, copy_of: Callable[[Path], Path]) -> None:
    path = copy_of(pico_ner)
    (path.parent / "secret").write_text("secret")
    make, says = CROOKED[case]
    make(path)
    with pytest.raises(SqueezeError) as caught:
        open_checkpoint(str(path), weights=False)
    assert says in str(caught.value)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_what_git_lfs_did_not_fetch(name: str, pico_bert: Path, copy_of: Callable[[Path], Path]) -> None:
    """What nobody needs may have been left out on purpose."""
    path = copy_of(pico_bert)
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    (path / "tf_model.h5").write_text(pointer)
    open_checkpoint(str(path))
    (path / name).write_text(pointer)
    with pytest.raises(SqueezeError, match=rf"{name} is a Git LFS pointer and not the file itself; run `git lfs pull`"):
        open_checkpoint(str(path))


def test_a_socket_and_a_large_small_file(pico_bert: Path, copy_of: Callable[[Path], Path]) -> None:
    path = copy_of(pico_bert)
    with (path / "tokenizer.json").open("r+b") as file:
        file.truncate(1 << 28)  # a hole: it takes no space
    with pytest.raises(SqueezeError, match=r"tokenizer\.json has 268,435,456 bytes, at most"):
        check_files(path)
    (path / "tokenizer.json").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        before = Path.cwd()
        os.chdir(path)  # the path of a socket must be short
        server.bind("s")
        os.chdir(before)
    with pytest.raises(SqueezeError, match="is a socket, a regular file was expected"):
        check_files(path)


def test_links_within_the_checkpoint_are_followed(
    pico_ner: Path, copy_of: Callable[[Path], Path], shell: Shell
) -> None:
    path = copy_of(pico_ner)
    (path / "model.safetensors").rename(path / "weights")
    (path / "model.safetensors").symlink_to("weights")
    (path / ".hidden").symlink_to("/nowhere")
    (path / "elsewhere").symlink_to("/etc")  # a directory that is neither read nor copied
    (path.parent / "linked").symlink_to(path.name)
    said = shell("shrink linked --layers 2 --out out")
    assert said.code == 0, said.err
    assert not (path.parent / "out" / "model.safetensors").is_symlink()


def test_links_of_the_hub_cache_are_followed(pico_ner: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "0123"
    blobs = tmp_path / "models--a--b" / "blobs"
    (snapshot / "onnx").mkdir(parents=True)
    blobs.mkdir()
    for file in pico_ner.iterdir():
        shutil.copy(file, blobs / file.name)
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    (blobs / "graph").touch()
    (snapshot / "onnx" / "model.onnx").symlink_to("../../../blobs/graph")
    assert open_checkpoint(str(snapshot)).labels == open_checkpoint(str(pico_ner)).labels
    (tmp_path / "refs").touch()
    (snapshot / "vocab.txt").symlink_to("../../../refs")
    with pytest.raises(SqueezeError, match="outside of the checkpoint"):
        open_checkpoint(str(snapshot))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({}, "weight_map is missing, an object was expected"),
        ({"weight_map": []}, "weight_map is a list, an object was expected"),
        ({"weight_map": {}}, "weight_map lists no file"),
        ({"weight_map": {"a": 1}}, "weight_map.a is an integer, a string was expected"),
        ({"weight_map": {"a": "/etc/passwd"}}, "lists '/etc/passwd', the name of a file beside the index was expected"),
        ({"weight_map": {"a": "../x.safetensors"}}, "lists '../x.safetensors', the name of a file beside the index"),
        ({"weight_map": {"a": "x\0.safetensors"}}, "the name of a file beside the index was expected"),
        ({"weight_map": {"a": "none.safetensors"}}, "lists none.safetensors, which is missing"),
    ],
)
def test_shard_indexes(content: object, says: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(content))
    with pytest.raises(SqueezeError) as caught:
        weight_files(tmp_path)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("adapter_config.json", "holds an adapter (PEFT) without its model"),
        ("tf_model.h5", "holds weights of TensorFlow alone"),
        ("tf_model-00001-of-00002.h5", "holds weights of TensorFlow alone"),
        ("flax_model.msgpack", "holds weights of Flax alone"),
        ("model.ckpt-1000000.index", "holds a checkpoint of TensorFlow"),
        ("onnx/model_quantized.onnx", "holds ONNX graphs alone"),
    ],
)
@pytest.mark.parametrize("has_config", [True, False])
def test_formats_of_other_programs(file: str, says: str, has_config: bool, tmp_path: Path) -> None:
    written = tmp_path / file
    written.parent.mkdir(exist_ok=True)
    written.write_text("{}")
    if has_config:
        (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(SqueezeError, match=re.escape(f"{tmp_path} {says}, and weights of PyTorch are needed; ")):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize("name", ["model.fp16.safetensors", "model-00001-of-00002.safetensors"])
def test_weights_that_are_not_loaded_do_not_count(name: str, pico_bert: Path, copy_of: Callable[[Path], Path]) -> None:
    path = copy_of(pico_bert)
    known = open_checkpoint(str(pico_bert))
    save_file({"classifier.weight": torch.zeros(3, 32)}, path / name)
    checkpoint = open_checkpoint(str(path))
    assert [file.name for file in checkpoint.weights] == ["model.safetensors"]
    assert checkpoint.weights_sha256() == known.weights_sha256()
