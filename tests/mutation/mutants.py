"""Change one line of the package at a time, and count the changes that the tests notice.

    python tests/mutation/mutants.py                    # all: 2 at a time, about 8 minutes on 2 cores
    python tests/mutation/mutants.py --only metrics

Every mutant below is a small mistake in a loss, a score or the writer of checkpoints. The package is copied, one mutant
is applied to the copy, and the tests of its area run; the mutant is killed if one fails. Exit codes: 0 where at least
nine in ten are killed, else 1; 2 where a text to replace is not in the package, or the tests fail without a mutant.

The large libraries are imported once; every mutant runs in a fork.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GOAL = 0.9
LIMIT = 300  # seconds, after which an endless loop counts as killed


@dataclass(frozen=True)
class Mutant:
    """A change of one text, which occurs once in its file."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Area:
    """Mutants, and the tests that must notice them."""

    tests: tuple[str, ...]
    mutants: tuple[Mutant, ...]


def _in(file: str, *changes: tuple[str, str]) -> tuple[Mutant, ...]:
    return tuple(Mutant(file, old, new) for old, new in changes)


AREAS = {
    "objectives": Area(
        ("tests/objectives",),
        (
            *_in(
                "objectives/__init__.py",
                ("labels >= 0", "labels > 0"),
                ("known.all(dim=-1)", "known.any(dim=-1)"),
            ),
            *_in("models/full_precision.py", ("tensor.element_size() < 4", "tensor.element_size() < 2")),
            *_in(
                "objectives/_divergence.py",
                ("math.sqrt(left.shape[-1])", "math.sqrt(left.shape[-2])"),
                ("enabled=False):  # of the gradients too", "enabled=True):"),
                ("masked_fill_(~allowed", "masked_fill_(allowed"),
                ("total / first.left.shape[1]", "total / first.left.shape[2]"),
                ("sub_(log_of_sums).mul_(p)", "sub_(log_of_sums).mul_(q)"),
                ("_log_of_sum(s, p) - _log", "_log_of_sum(s, p) + _log"),
                ("terms - p * terms.sum", "terms - q * terms.sum"),
                ("q.sub_(p)", "p.sub_(q)"),
                ("pairs.any(dim=0) | pairs.any(dim=1)", "pairs.any(dim=0)"),
                ("int(used[-1]) + 1", "int(used[-1])"),
                ("torch.finfo(scores.dtype).min)", "-float('inf'))"),
            ),
            *_in(
                "objectives/_soft_labels.py",
                ("rows.temperature**2", "rows.temperature"),
                ("_softened(rows.teacher, rows.temperature)", "_softened(rows.teacher, 1.0)"),
                ("logits / temperature", "logits * temperature"),
                ("logits.scatter(-1, ids, _lowest(logits))", "logits"),
                ("if temperature > 1 else softened.clamp(min=_lowest(logits))", ""),
            ),
            *_in(
                "objectives/_states.py",
                ("/ student.shape[-1]", "/ student.shape[0]"),
                ("(1 - functional", "(1 + functional"),
            ),
            *_in(
                "objectives/attention.py",
                ("~pair.allowed.unsqueeze(1)", "~pair.allowed.unsqueeze(1).mT"),
                ("/ difference.shape[1]", "/ difference.shape[2]"),
                ("scores(teacher)", "scores(*teacher[:2][::-1], *teacher[2:])"),
            ),
            *_in("objectives/kl.py", ("(teacher - student)", "(student - teacher)"), (" * scale(rows)", "")),
            *_in("objectives/soft.py", ("teacher.exp() * student", "student.exp() * teacher")),
            *_in("objectives/hard.py", ("rows.labels[known]", "rows.labels[known].roll(1, 0)")),
            *_in("objectives/mlm.py", ("ignore_index=-100", "ignore_index=0")),
            *_in(
                "objectives/minilm.py",
                ("attention_divergence(pair) + ", ""),
                ('states_of(pair, "value")', 'states_of(pair, "key")'),
            ),
            *_in(
                "objectives/minilmv2.py",
                ('("query", "key", "value")', '("query", "key")'),
                ("pair.relation_heads or teacher.shape[1]", "teacher.shape[1]"),
                ("vectors.transpose(1, 2).reshape", "vectors.reshape"),
            ),
        ),
    ),
    "metrics": Area(
        (
            "tests/tasks/test_classification.py",
            "tests/tasks/test_classification_scores.py",
            "tests/tasks/test_similarity.py",
            "tests/tasks/test_qa_score.py",
            "tests/tasks/test_relation.py",
            "tests/tasks/test_nli.py",
        ),
        (
            *_in(
                "tasks/metrics/labels.py",
                ("2 * hits / np.maximum(both, 1), empty", "hits / np.maximum(both, 1), empty"),
                ("empty=1.0", "empty=0.0"),
                ("stats.spearmanr,", "stats.pearsonr,"),
                ("true.any(axis=1)", "guessed.any(axis=1)"),
                (".all(axis=1).mean()", ".any(axis=1).mean()"),
                ("correlation if math.isfinite(correlation) else 0.0", "correlation"),
                ("_ratio(2 * true, in_gold + in_predicted)", "_ratio(true, in_gold + in_predicted)"),
                ('"recall": _ratio(true, in_gold)', '"recall": _ratio(true, in_predicted)'),
            ),
            *_in(
                "tasks/metrics/answers.py",
                ("RANKS = 5", "RANKS = 4"),
                ("a|an|the", "a|an"),
                ("start=1)", "start=0)"),
                ("1 / rank", "rank"),
            ),
        ),
    ),
    "writer": Area(
        ("tests/test_checkpoint.py", "tests/test_output.py", "tests/files/test_files.py", "tests/test_manifest.py"),
        (
            *_in(
                "checkpoint.py",
                ('f"LABEL_{i}"', 'f"LABEL{i}"'),
                ("path.name in _OWN_FILES or ", ""),
                ("    copy_graphs(source, target)\n", ""),
            ),
            *_in(
                "files/__init__.py",
                ("if os.path.lexists(out) and not force", "if False"),
                ("os.fsync(file.fileno())", "pass"),
                ("temporary.unlink(missing_ok=True)", "pass"),
                ('errors="replace"', 'errors="ignore"'),
                ("        out.rename(former)", "        shutil.rmtree(out)"),
                ("sorted(path.rglob", "list(path.rglob"),
                ('".partial", ', ""),
                ('f"{name}\\0"', 'f"{file.name}\\0"'),
            ),
            *_in(
                "output.py",
                ("    remove_states(out)", "    pass"),
                ("(out / LOCK_FILE).unlink(missing_ok=True)", "pass"),
                ("(*(record.parent.history if record.parent else ()), entry)", "(entry,)"),
                ("record.task or (record.parent.task if record.parent else None)", "record.task"),
                ("dict(record.other_parents)", "{}"),
                ("if has_state(partial) and not force", "if has_state(partial) and force"),
                ("if not has_state(partial):", "if False:"),
                ("and not is_ours", "and False"),
                ("is_relative_to(out.resolve())", "is_relative_to(out)"),
            ),
        ),
    ),
    "predictions": Area(
        ("tests/annotation", "tests/stages/test_predict_resume.py", "tests/data/records/test_incoming_position.py"),
        (
            *_in(
                "annotation/saved.py",
                ("exists and not (resume or force)", "False"),
                ("resume is True and not exists", "False"),
                ("self.path.is_file() and not self._is_empty()", "self.path.is_file()"),
                ("if made_by.get(name) != value", "if False"),
                ("if len(texts) < wanted", "if False"),
                ("if tally.mark() != mark", "if False"),
                ('mark["bad"] - tally.bad', "0"),
                ('if not line.endswith(b"\\n")', "if False"),
                ("            document = []", "            pass"),
            ),
            *_in(
                "annotation/output.py",
                ("(request, *written)", "(request,)"),
                ("                target.path.unlink(missing_ok=True)", "                pass"),
                ("    stream.flush()\n    return", "    return"),
                ("journal.flush()", "pass"),
                ("                    if not written:  # nothing", "                    if False:  # nothing"),
                ("check_free(target.out, force=force)", "pass"),
                ("stack.callback(copy.unlink, missing_ok=True)", "pass"),
                ("stack.enter_context(exclusive_lock(lock, refuse))", "pass"),
            ),
            *_in("annotation/tally.py", ("[record.id, record.values]", "[record.id]")),
            *_in(
                "stages/predict.py",
                ("tally.is_complete or not", "not"),
                ("checkpoint.task.as_json() if checkpoint.task else None", "None"),
            ),
            *_in("data/records/incoming.py", ("self.read >= self.size", "False")),
        ),
    ),
}


@dataclass(frozen=True)
class Result:
    """Whether the tests noticed a mutant."""

    area: str
    mutant: Mutant
    killed: bool
    seconds: float

    def __str__(self) -> str:
        fate = "killed  " if self.killed else "SURVIVED"
        return (
            f"{fate} {self.seconds:5.1f} s  {self.mutant.file}: {self.mutant.old}  ->  {self.mutant.new or '(nothing)'}"
        )


def stale(root: Path = ROOT) -> list[str]:
    """Return the mutants whose old text does not occur exactly once in its file."""
    found = []
    for area in AREAS.values():
        for mutant in area.mutants:
            path = root / "biosqueeze" / mutant.file
            count = path.read_text(encoding="utf-8").count(mutant.old) if path.is_file() else 0
            if count != 1:
                found.append(f"{mutant.file}: {mutant.old!r} occurs {count} times")
    return found


def _preload() -> None:
    """Import what takes long and is not mutated."""
    import accelerate  # noqa: F401
    import hypothesis  # noqa: F401
    import pytest  # noqa: F401
    import scipy.stats  # noqa: F401
    import seqeval.metrics  # noqa: F401
    import sklearn.metrics  # noqa: F401
    import torch
    import transformers

    torch.set_num_threads(1)
    for name in ("BertForMaskedLM", "BertForTokenClassification", "AutoTokenizer", "PreTrainedTokenizerFast"):
        getattr(transformers, name)


def run(area: str, mutant: Mutant | None, work: Path) -> tuple[bool, float]:
    """Run an area's tests on a copy of the package, with a mutant or without; return whether they pass, and seconds."""
    copy = Path(tempfile.mkdtemp(dir=work))
    for folder in ("biosqueeze", "tests"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    if mutant:
        path = copy / "biosqueeze" / mutant.file
        path.write_text(path.read_text(encoding="utf-8").replace(mutant.old, mutant.new), encoding="utf-8")
    started = time.monotonic()
    child = os.fork()
    if not child:
        _run_tests(copy, AREAS[area].tests)
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > started + LIMIT:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    shutil.rmtree(copy, ignore_errors=True)
    return os.waitstatus_to_exitcode(ended[1]) == 0, time.monotonic() - started


def _run_tests(copy: Path, tests: Sequence[str]) -> None:
    """Run the tests in the copy and end this process: exit code 0 where they pass."""
    import pytest

    code = 1
    try:
        os.chdir(copy)
        sys.path[:] = [str(copy), *(path for path in sys.path if Path(path).resolve() != ROOT)]
        with Path(os.devnull).open("w") as nothing:
            os.dup2(nothing.fileno(), 1)
            os.dup2(nothing.fileno(), 2)
            options = ["-x", "-q", "-p", "no:cacheprovider", "--basetemp", str(copy / "temporary")]
            code = int(pytest.main([*options, *tests]))
    finally:
        os._exit(code)


def main() -> int:
    """Run the mutants; print each result and the share that is killed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=AREAS, help="one area")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if missing := stale():
        print("\n".join(missing), file=sys.stderr)
        return 2
    sys.dont_write_bytecode = True
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")
    _preload()
    areas = {name: area for name, area in AREAS.items() if options.only in (None, name)}
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(options.jobs) as pool:
        for name in areas:
            if not run(name, None, Path(work))[0]:
                print(f"the tests of {name} fail without any mutant", file=sys.stderr)
                return 2
        todo = [(name, mutant) for name, area in areas.items() for mutant in area.mutants]

        def test(item: tuple[str, Mutant]) -> Result:
            passed, seconds = run(*item, Path(work))
            result = Result(*item, killed=not passed, seconds=seconds)
            print(result, flush=True)
            return result

        results = list(pool.map(test, todo))
    for name in areas:
        share([result for result in results if result.area == name], name)
    return 0 if share(results, "all") >= GOAL else 1


def share(results: Sequence[Result], name: str) -> float:
    """Print and return the share of killed mutants."""
    killed = sum(result.killed for result in results)
    print(f"{name}: {killed} of {len(results)} killed, {killed / len(results):.0%}")
    return killed / len(results)


if __name__ == "__main__":
    raise SystemExit(main())
