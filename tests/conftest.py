"""Shared fixtures: pico checkpoints built once per session; no network."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["OMP_NUM_THREADS"] = "1"

import contextlib
import ctypes
import fcntl
import gc
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache as once
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings

from biosqueeze import progress
from tests import graphs, layouts, pico
from tests.campaigns.forked import ForkedPopen
from tests.cli.run import Shell

# Every run draws other examples, so a few are enough; `BIOSQUEEZE_CONTRACTS=all` draws hypothesis's usual number.
settings.register_profile("few", max_examples=30, deadline=None)
settings.register_profile("many", deadline=None)
settings.load_profile("many" if os.environ.get("BIOSQUEEZE_CONTRACTS") == "all" else "few")


def pytest_configure(config: pytest.Config) -> None:
    import torch

    torch.set_num_threads(1)
    os.register_at_fork(after_in_child=compute_in_one_thread)
    os.fsync = os.fstat  # a killed process loses nothing that was not flushed to the disk
    _take_signals()


def compute_in_one_thread() -> None:
    """Keep torch from computing in several threads, in which the fork of a process that has done so never ends."""
    import torch

    torch.set_num_threads(1)
    torch.set_num_threads = lambda count: None  # type: ignore[assignment] # other threads are of no use in tests


def _take_signals() -> None:
    """Undo what `nohup` and the background jobs of a shell do: the tests send these signals."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(tryfirst=True)  # before pytest applies -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    import torch

    no_gpu = pytest.mark.skip(reason="needs a CUDA device")
    no_data = pytest.mark.skip(reason="BIOSQUEEZE_DATA names no folder of benchmarks")
    for item in items:
        if "gpu" in item.keywords and not torch.cuda.is_available():
            item.add_marker(no_gpu)
        if "real" in item.keywords and not os.environ.get("BIOSQUEEZE_DATA"):
            item.add_marker(no_data)
        if isinstance(item, pytest.Function) and _is_rarer(item):
            item.add_marker(pytest.mark.slow)
    # Long tests first: at the end, one worker would wait for them.
    items.sort(key=lambda item: "slow" not in item.keywords)


def _is_rarer(item: pytest.Function) -> bool:
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return any(value in pico.RARER for value in parameters if isinstance(value, str))


def pytest_collection_finish() -> None:
    """Spare the garbage collector the hundreds of thousands of objects that importing torch and transformers leaves."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def without_optional_runtimes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons have the same rows whatever extras are installed."""
    monkeypatch.setattr("biosqueeze.backends.openvino.available", lambda checkpoint: ())


@pytest.fixture(scope="session", autouse=True)
def operators_of_the_exporter() -> Iterator[None]:
    """Read torch's ONNX operators once in a worker of pytest-xdist, and not for each of dozens of exports."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    from torch.onnx._internal.exporter import _registration

    read = once(_registration.ONNXRegistry.from_torchlib)
    with mock.patch.object(_registration.ONNXRegistry, "from_torchlib", staticmethod(read)):
        yield


@pytest.fixture(autouse=True)
def usual_messages() -> None:
    """A test before may have run a command with --quiet or --json."""
    progress.set_level(progress.Level.NORMAL)
    progress.show_tables(shown=True)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tests prepare is kept apart from the user's own cache; the processes that they start inherit it."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["BIOSQUEEZE_CACHE"] = str(folder)
    return folder


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, for what must not be found or must be seen in it."""
    monkeypatch.setenv("BIOSQUEEZE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real benchmarks; only for tests marked `real`."""
    return Path(os.environ["BIOSQUEEZE_DATA"])


@pytest.fixture(scope="session")
def pico_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the shared checkpoints; the session fails if a test adds results to one: it must copy it."""
    root = tmp_path_factory.mktemp("pico")
    yield root
    assert not list(root.glob("pico-*/results"))


@pytest.fixture(scope="session")
def pico_bert(pico_root: Path) -> Path:
    """Cased BERT with its MLM head."""
    return pico.save("bert", pico_root / "pico-bert")


@pytest.fixture(scope="session")
def pico_bert_uncased(pico_root: Path) -> Path:
    """Lower-casing BERT with its MLM head."""
    return pico.save("bert", pico_root / "pico-bert-uncased", cased=False)


@pytest.fixture(scope="session")
def pico_roberta(pico_root: Path) -> Path:
    """RoBERTa with byte-level BPE and its MLM head."""
    return pico.save("roberta", pico_root / "pico-roberta")


@pytest.fixture(scope="session")
def pico_electra(pico_root: Path) -> Path:
    """ELECTRA discriminator whose embeddings are narrower than its layers; no MLM head."""
    return pico.save("electra", pico_root / "pico-electra")


@pytest.fixture(scope="session")
def pico_distilbert(pico_root: Path) -> Path:
    """DistilBERT with its MLM head; takes no token types."""
    return pico.save("distilbert", pico_root / "pico-distilbert")


@pytest.fixture(scope="session")
def pico_albert(pico_root: Path) -> Path:
    """ALBERT with its MLM head and a Unigram tokenizer; four layers of one set of weights."""
    return pico.save("albert", pico_root / "pico-albert")


@pytest.fixture(scope="session")
def pico_ner(pico_root: Path) -> Path:
    """Cased BERT with a token-classification head over pico.LABELS."""
    return pico.save("bert", pico_root / "pico-ner", head="token-classification")


@pytest.fixture(scope="session", params=pico.FAMILIES)
def pico_any(request: pytest.FixtureRequest, pico_root: Path) -> Path:
    """Each family in turn, as it is published."""
    return pico.save(request.param, pico_root / f"any-{request.param}")


@pytest.fixture(scope="session")
def shallow(pico_root: Path) -> Callable[[str, str], Path]:
    """`shallow("bert", "token-classification")` has one layer or two: exporting takes its time per layer."""

    @once
    def make(family: str, head: str) -> Path:
        with mock.patch.object(pico, "LAYERS", pico.ROWS[family].layers_exported):
            return pico.save(family, pico_root / f"shallow-{family}-{head}", head=head)

    return make


@pytest.fixture(scope="session")
def exported(
    tmp_path_factory: pytest.TempPathFactory, shallow: Callable[[str, str], Path]
) -> Callable[[str, str], Path]:
    """`exported("bert", "token-classification")` is a shallow checkpoint with onnx/model.onnx in it.

    Each is exported once, whatever the number of pytest-xdist's workers. Do not change its files: copy it.
    """
    from biosqueeze.stages import export

    root = _shared_folder(tmp_path_factory, "exported")

    @once
    def make(family: str, head: str) -> Path:
        out = root / f"{family}-{head}"
        with _locked(out):
            if not out.exists():
                export.run(export.Options(checkpoint=str(shallow(family, head)), out=str(out)))
        return out

    return make


@pytest.fixture(scope="session")
def quantized_graph(
    tmp_path_factory: pytest.TempPathFactory, exported: Callable[[str, str], Path]
) -> Callable[[str, str, str], graphs.Int8Graph]:
    """`quantized_graph("inc-static", "bert", "token-classification")`: the int8 graph of `exported`, made once too."""
    root = _shared_folder(tmp_path_factory, "quantized")

    @once
    def make(method: str, family: str, head: str) -> graphs.Int8Graph:
        out = root / f"{method}-{family}-{head}"
        with _locked(out):
            if not out.exists():
                graphs.quantize(exported(family, head), method, out)
        return graphs.read(out)

    return make


def _shared_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """Return a folder that all workers of pytest-xdist share."""
    root = factory.getbasetemp()
    folder = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / name
    folder.mkdir(exist_ok=True)
    return folder


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[None]:
    with out.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def forked_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that a command starts with `python -m biosqueeze...` are forks of this one: they import nothing."""
    monkeypatch.setattr(subprocess, "Popen", ForkedPopen)


@pytest.fixture
def shell(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    """The command line, run in a fresh working directory."""
    monkeypatch.chdir(tmp_path)
    return Shell(capfd, monkeypatch)


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Path], Path]:
    """A private copy of a shared checkpoint, to be damaged."""
    return lambda source: Path(shutil.copytree(source, tmp_path / f"copy-{source.name}"))


@pytest.fixture
def biobert_v11(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Hub cache that holds dmis-lab/biobert-v1.1 as it is; the value is a stock copy of the same weights."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return layouts.lay_out_biobert(tmp_path)


class _Stack(ctypes.Structure):
    """C's stack_t."""

    _fields_ = (("pointer", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@pytest.fixture(autouse=True)
def plain_signal_stack() -> None:
    """Have signals delivered on the thread's own stack.

    Some library that a test loads leaves the main thread an alternate signal stack that does not hold: the next signal,
    such as that of a data loader's worker that ends, then kills the whole session.
    """
    if sys.platform.startswith("linux"):
        disabled = 2
        ctypes.CDLL(None).sigaltstack(ctypes.byref(_Stack(None, disabled, 0)), None)
