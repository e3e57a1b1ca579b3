"""Run a fixed set of commands and print the SHA-256 of everything they write that must not change.

    python examples/benchmarks/fixed_outputs.py --json before.json
    python examples/benchmarks/fixed_outputs.py --compare before.json      # exit code 1 where a hash differs

Run it before and after a change of the code that must not change numbers: weights, heads, ONNX graphs, quantized
weights, predictions, losses and scores are compared bit for bit. The commands run `python -m biosqueeze` of the Python
path, on the CPU, in fp32, on one thread, with models and data generated here. About 4 minutes on two cores.
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "NO_COLOR": "1",
}
SPLITS = {"train": 48, "dev": 16, "test": 16}
STEPS = ("--precision", "fp32", "--batch-size", "8", "--max-length", "48")
TUNE = (*STEPS, "--steps", "6", "--lr", "2e-3")
DISTIL = (*STEPS, "--steps", "5")
SYLLABLES = ("car", "ci", "no", "ma", "neu", "ro", "pa", "thy", "hep", "ti", "tis", "fib", "gly", "co", "lin")
WORDS = tuple(first + second for first in SYLLABLES for second in SYLLABLES)


@dataclass(frozen=True)
class Case:
    """One command and the files of its output to hash.

    `{out}` in the words is the output directory, `{name}` the directory of another case or of a generated input.
    """

    name: str
    words: str
    needs: tuple[str, ...] = ()
    training: bool = True


# Data


def _sentence(rng: random.Random, low: int = 6, high: int = 14) -> list[str]:
    return rng.choices(WORDS, k=rng.randint(low, high))


def _tagged(rng: random.Random) -> str:
    tags = {True: "B-Disease", False: "O"}
    return "".join(f"{word}\t{tags[word.endswith('tis')]}\n" for word in _sentence(rng)) + "\n"


def _elements(rng: random.Random) -> str:
    tags = {"tis": "I-PAR", "car": "I-INT", "lin": "I-OUT"}
    return "".join(f"{word}\t{tags.get(word[-3:], 'O')}\n" for word in _sentence(rng)) + "\n"


def _relation(rng: random.Random) -> dict[str, Any]:
    words = _sentence(rng)
    first, second = sorted(rng.sample(range(len(words)), 2))
    starts = [len(" ".join([*words[:place], ""])) for place in (first, second)]
    ends = [start + len(words[place]) for start, place in zip(starts, (first, second), strict=True)]
    label = "inhibits" if words[first].endswith("tis") else rng.choice(("none", "activates"))
    entities = [
        {"start": start, "end": end, "type": kind}
        for start, end, kind in zip(starts, ends, ("DRUG", "GENE"), strict=True)
    ]
    return {"text": " ".join(words), "head": entities[0], "tail": entities[1], "label": label}


def _single(rng: random.Random) -> dict[str, Any]:
    words = _sentence(rng)
    return {"text": " ".join(words), "label": "ill" if words[0].endswith("tis") else rng.choice(("well", "unknown"))}


def _several(rng: random.Random) -> dict[str, Any]:
    return {"text": " ".join(_sentence(rng)), "labels": rng.sample(("heart", "liver", "lung"), k=rng.randint(0, 2))}


def _scored(rng: random.Random) -> str:
    return "\t".join((" ".join(_sentence(rng)), " ".join(_sentence(rng)), f"{rng.uniform(0, 4):.2f}")) + "\n"


def _pair(rng: random.Random) -> dict[str, Any]:
    texts = {key: " ".join(_sentence(rng)) for key in ("sentence1", "sentence2")}
    return {**texts, "label": rng.choice(("entailment", "neutral", "contradiction"))}


def _questions(rng: random.Random, count: int, split: str) -> dict[str, Any]:
    paragraphs = []
    for number in range(count):
        words = _sentence(rng, 8, 60)
        place = rng.randrange(len(words))
        words[place] = rng.choice(("hepatitis", "fibtis"))
        start = len(" ".join([*words[:place], ""]))
        none = number % 4 == 0
        answers = [] if none else [{"text": words[place], "answer_start": start}]
        question = {"id": f"{split}-{number}", "question": "which disease", "answers": answers, "is_impossible": none}
        paragraphs.append({"context": " ".join(words), "qas": [question]})
    return {"version": "v2.0", "data": [{"title": "generated", "paragraphs": paragraphs}]}


def _json_line(make: Callable[[random.Random], dict[str, Any]]) -> Callable[[random.Random], str]:
    return lambda rng: json.dumps(make(rng)) + "\n"


DATA: dict[str, tuple[str, str, Callable[[random.Random], str]]] = {
    "ner": ("tsv", "", _tagged),
    "pico": ("txt", "", _elements),
    "relation": ("jsonl", "", _json_line(_relation)),
    "single": ("jsonl", "", _json_line(_single)),
    "multi": ("jsonl", "", _json_line(_several)),
    "similarity": ("tsv", "sent1\tsent2\tscore\n", _scored),
    "nli": ("jsonl", "", _json_line(_pair)),
}


def write_data(work: Path) -> None:
    """Write the generated data sets, a corpus, calibration text and records to predict."""
    for kind, (suffix, header, make) in DATA.items():
        (work / f"data-{kind}").mkdir()
        for split, count in SPLITS.items():
            rng = random.Random(f"{kind} {split}")
            text = header + "".join(make(rng) for _ in range(count))
            (work / f"data-{kind}" / f"{split}.{suffix}").write_text(text, encoding="utf-8")
    (work / "data-qa").mkdir()
    for split, count in SPLITS.items():
        questions = _questions(random.Random(f"qa {split}"), count, split)
        (work / "data-qa" / f"{split}-v2.0.json").write_text(json.dumps(questions), encoding="utf-8")
    rng = random.Random("corpus")
    sentences = [" ".join(_sentence(rng)).capitalize() + "." for _ in range(160)]
    (work / "corpus.txt").write_text("\n".join(sentences) + "\n", encoding="utf-8")
    records = [{"id": str(n), "text": " ".join(_sentence(rng, 4, 90))} for n in range(12)]
    (work / "records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")


# Models


def _wordpiece(pieces: Sequence[str], lower: bool) -> Any:
    import transformers
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    letters = [chr(code) for code in range(33, 127)]
    vocabulary = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters), *pieces])
    core = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(vocabulary)}, unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(lowercase=lower)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    core.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=128, **names)


def write_models(work: Path) -> None:
    """Write pico checkpoints: BERTs with a masked-language-model head, one with another vocabulary, one headless."""
    import torch
    import transformers

    vocabularies = {
        "bert": ([*WORDS, *(f"##{syllable}" for syllable in SYLLABLES)], False),
        "bert2": ([*WORDS, *(f"##{syllable}" for syllable in SYLLABLES)], False),
        "other": ([*WORDS[::3], *(f"##{syllable}" for syllable in SYLLABLES[::2])], True),
    }
    for seed, (name, (pieces, lower)) in enumerate(vocabularies.items()):
        tokenizer = _wordpiece(pieces, lower)
        torch.manual_seed(seed)
        config = transformers.BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=128,
            initializer_range=0.1,
        )
        model = transformers.BertForMaskedLM(config)
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.data += 0.1 * torch.randn_like(parameter)
        model.save_pretrained(work / name)
        tokenizer.save_pretrained(work / name)
        if name == "bert":
            model.bert.save_pretrained(work / "plain")
            tokenizer.save_pretrained(work / "plain")


# Commands


def _tune(name: str, words: str, base: str = "bert") -> Case:
    return Case(name, f"finetune {{{base}}} --out {{out}} {' '.join(TUNE)} {words}")


def _distil(name: str, words: str, *needs: str) -> Case:
    return Case(name, f"distill --out {{out}} {' '.join(DISTIL)} {words}", needs)


def _other(name: str, words: str, *needs: str) -> Case:
    return Case(name, words, needs, training=False)


def _tasks() -> Iterator[Case]:
    """Fine-tuning of each kind of task and with each head."""
    yield _tune("ner", "--data {data-ner}")
    yield _tune("ner2", "--data {data-ner} --seed 5", "bert2")
    yield _tune("ner-other", "--data {data-ner}", "other")
    yield _tune("ner-crf", "--data {data-ner} --tagger crf")
    yield _tune("ner-bilstm", "--data {data-ner} --tagger bilstm --scheme BIOUL")
    yield _tune(
        "ner-options",
        "--data {data-ner} --layer-decay 0.8 --reinit-layers 1 --class-weights balanced --smart 0.5 --accumulate 2 "
        "--eval-every 2 --label-all-pieces",
    )
    yield _tune("pico", "--data {data-pico} --task pico")
    yield _tune("relation", "--data {data-relation} --task relation --negative none")
    yield _tune(
        "relation-mentions",
        "--data {data-relation} --task relation --negative none --entities original --representation mentions",
    )
    yield _tune(
        "relation-starts",
        "--data {data-relation} --task relation --negative none --entities markers --representation entity-starts",
    )
    yield _tune("single", "--data {data-single} --task classification")
    yield _tune("multi", "--data {data-multi} --task classification")
    yield _tune("similarity", "--data {data-similarity} --task similarity")
    yield _tune("similarity-cosine", "--data {data-similarity} --task similarity --representation cosine")
    yield _tune("nli", "--data {data-nli} --task nli")
    yield _tune("qa", "--data {data-qa} --task qa --stride 8")
    yield _tune("demo-ner", "--data demo:ner --train-size 40")


def _distillations() -> Iterator[Case]:
    """Distillation on a task and on text."""
    yield _distil("distil-task", "--teacher {ner} --student distil --data {data-ner} --corpus {corpus.txt}", "ner")
    yield _distil(
        "distil-teachers",
        "{half} --teacher {ner} --teacher {ner2} --teacher-weights 2,1 --data {data-ner} --corpus {corpus.txt} "
        "--unlabelled 0.5 --warm-start finetune --warm-epochs 0.5",
        "ner",
        "ner2",
        "half",
    )
    yield _distil(
        "distil-cached",
        "{half} --teacher {ner} --data {data-ner} --corpus {corpus.txt} --cache-teacher {work}/cache-task "
        "--loss kl --loss hidden --dropout 0",
        "ner",
        "half",
    )
    yield _distil(
        "distil-augmented",
        "{half} --teacher {ner} --data {data-ner} --augment 1 --augment-with {bert} --loss tinybert --loss hard",
        "ner",
        "half",
    )
    yield _distil(
        "distil-cross-vocabulary",
        "{other} --teacher {ner} --data {data-ner} --corpus {corpus.txt} --loss kl --loss hard",
        "ner",
    )
    yield _distil("distil-relation", "--teacher {relation} --student distil --data {data-relation}", "relation")
    yield _distil("distil-multi", "--teacher {multi} --student distil --data {data-multi}", "multi")
    yield _distil("distil-similarity", "--teacher {similarity} --student distil --data {data-similarity}", "similarity")
    yield _distil("distil-qa", "--teacher {qa} --student distil --data {data-qa}", "qa")
    text = "--teacher {bert} --corpus {corpus.txt}"
    yield _distil("distil-text", f"{text} --student distil")
    yield _distil("distil-text-compact", f"{text} --student compact --loss compact")
    yield _distil("distil-text-tiny", f"{text} --student tiny --loss distilbert")
    yield _distil(
        "distil-text-losses",
        f"{text} --student distil --loss minilmv2 --loss minilm --loss mse=0.1 --loss attention --layer-map last",
    )
    yield _distil(
        "distil-text-mobilebert", f"{text} {{narrow}} --loss hidden --loss embedding --projection per-layer", "narrow"
    )
    yield _distil("distil-text-cached", f"{text} --student distil --cache-teacher {{work}}/cache-text --cache-top 16")
    yield _distil("distil-text-head", "--teacher {plain} --corpus {corpus.txt} --student distil --fit-head 4")


def _surgery() -> Iterator[Case]:
    """Shrinking, exporting and quantizing."""
    yield _other("half", "shrink {bert} --layers 0,3 --out {out}")
    yield _other("narrow", "shrink {bert} --layers every-other --hidden 16 --out {out}")
    yield _other("shrink-layers", "shrink {ner} --layers 2 --out {out}", "ner")
    yield _other("shrink-heads", "shrink {ner} --heads 2 --out {out}", "ner")
    yield _other("shrink-ffn", "shrink {ner} --ffn 24 --out {out}", "ner")
    yield _other("shrink-hidden", "shrink {ner} --hidden 24 --layers bottom --out {out}", "ner")
    yield _other("shrink-preset", "shrink {bert} --student bert-mini --seed 3 --out {out}")
    yield _other("export", "export {ner} --out {out}", "ner")
    yield _other("quantize-dynamic", "quantize {export} --tolerance 0 --embeddings --out {out}", "export")
    yield _other(
        "quantize-static",
        "quantize {export} --method inc-static --calibration {corpus.txt} --calibration-samples 32 --max-length 48 "
        "--tolerance 0 --out {out}",
        "export",
    )


def _predictions() -> Iterator[Case]:
    """Predictions and scores."""
    for name in ("ner", "ner-crf", "single", "multi"):
        yield _other(f"predict-{name}", f"predict {{{name}}} {{records.jsonl}} --batch-size 4 --out {{out}}", name)
    for name in ("ner", "pico", "relation", "multi", "similarity-cosine", "nli", "qa"):
        yield _other(f"evaluate-{name}", f"evaluate {{{name}}} --json", name)
    onnx = "evaluate {quantize-dynamic} --backend onnxruntime:int8 --data {data-ner} --threads 1 --json"
    yield _other("evaluate-int8", onnx, "quantize-dynamic")


CASES = (*_tasks(), *_surgery(), *_distillations(), *_predictions())


class Runner:
    """Run cases in processes, each after the cases that it needs, and hash what they write."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.futures: dict[str, Future[dict[str, str]]] = {}

    def run(self, case: Case) -> dict[str, str]:
        """Return name -> hash of every output of the command."""
        for name in case.needs:
            self.futures[name].result()
        out = self.work / case.name
        words = [self._word(word, out) for word in case.words.split()]
        environment = {**os.environ, **ENVIRONMENT, "BIOSQUEEZE_CACHE": str(self.work / "cache")}
        started = time.perf_counter()
        process = subprocess.run(
            [sys.executable, "-m", "biosqueeze", *words], capture_output=True, text=True, env=environment, check=False
        )
        print(f"{case.name}: {time.perf_counter() - started:.1f} s", file=sys.stderr)
        if process.returncode:
            raise SystemExit(f"{case.name} failed: biosqueeze {' '.join(words)}\n{process.stderr[-3000:]}")
        hashes = {f"{case.name}/{key}": value for key, value in hash_output(out).items()}
        if "--json" in words:
            hashes[f"{case.name}/metrics"] = _digest(numbers(json.loads(process.stdout)["metrics"]))
        return hashes

    def _word(self, word: str, out: Path) -> str:
        if word == "{out}":
            return str(out)
        if word.startswith("{work}"):
            return str(self.work) + word.removeprefix("{work}")
        return str(self.work / word[1:-1]) if word.startswith("{") else word


# Hashes


def _digest(value: Any) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()


def hash_output(out: Path) -> dict[str, str]:
    """Return name -> hash of the weights, tokenizer, graphs, losses and predictions under a directory, or of a file."""
    if out.is_file():
        return {"predictions": _digest(out.read_bytes())}
    hashes: dict[str, str] = {}
    for path in sorted(out.rglob("*")) if out.is_dir() else ():
        name = str(path.relative_to(out))
        if path.suffix == ".safetensors":
            hashes[name] = hash_tensors(path)
        elif path.suffix == ".onnx":
            hashes[name] = hash_graph(path)
        elif path.name in ("config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json"):
            hashes[name] = _digest(path.read_bytes())
        elif path.name == "metrics.jsonl":
            hashes[name] = _digest([numbers(json.loads(line)) for line in path.read_text().splitlines()])
    return hashes


def hash_tensors(path: Path) -> str:
    """Hash names, types, shapes and values of a safetensors file, in the order of the names."""
    from safetensors.numpy import load_file

    digest = hashlib.sha256()
    for name, tensor in sorted(load_file(path).items()):
        digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
        digest.update(np.ascontiguousarray(tensor).tobytes())
    return digest.hexdigest()


def hash_graph(path: Path) -> str:
    """Hash the operators and initializers of an ONNX graph, and its outputs on a fixed padded batch.

    The bytes of the file itself hold names of source files and lines.
    """
    import onnx
    import onnxruntime

    graph = onnx.load(path).graph
    tensors = sorted(_digest(onnx.numpy_helper.to_array(tensor).tobytes()) for tensor in graph.initializer)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    ids = np.random.default_rng(0).integers(5, 200, (3, 17))
    mask = np.array([[1] * 17, [1] * 11 + [0] * 6, [1] * 5 + [0] * 12])
    feeds = {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": 0 * ids}
    inputs = [node.name for node in session.get_inputs()]
    outputs = session.run(None, {name: feeds[name].astype(np.int64) for name in inputs})
    values = [_digest(np.asarray(output).tobytes()) for output in outputs]
    names = [node.name for node in session.get_outputs()]
    return _digest([[node.op_type for node in graph.node], tensors, inputs, names, values])


TIMES = ("second", "minute", "time", "elapsed", "speed", "memory", "started", "created")


def numbers(value: Any) -> Any:
    """Return the value without the entries that measure time or memory."""
    if isinstance(value, dict):
        return {key: numbers(item) for key, item in value.items() if not any(word in key for word in TIMES)}
    return [numbers(item) for item in value] if isinstance(value, list) else value


def main() -> int:
    """Run all cases, print the table, and compare it with another one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--work", type=Path, help="an empty directory for everything written; a temporary one")
    parser.add_argument("--jobs", type=int, default=2, help="commands to run side by side")
    parser.add_argument("--only", default="", help="run cases whose name contains this, and those that they need")
    parser.add_argument("--json", type=Path, help="file to write the table to")
    parser.add_argument("--compare", type=Path, help="table of another revision; exit code 1 where a hash differs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        table = run_all(options.work or Path(temporary), options.jobs, options.only)
    for name, value in table.items():
        print(f"{value[:16]}  {name}")
    if options.json:
        options.json.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    return compare(table, json.loads(options.compare.read_text()), bool(options.only)) if options.compare else 0


def run_all(work: Path, jobs: int, only: str) -> dict[str, str]:
    """Return name -> hash of every output of the chosen cases."""
    work.mkdir(parents=True, exist_ok=True)
    write_data(work)
    write_models(work)
    runner = Runner(work)
    with ThreadPoolExecutor(jobs) as pool:
        for case in _chosen(only):
            runner.futures[case.name] = pool.submit(runner.run, case)
        return {key: value for future in runner.futures.values() for key, value in future.result().items()}


def _chosen(only: str) -> list[Case]:
    names = {case.name for case in CASES if only in case.name}
    for case in reversed(CASES):
        if case.name in names:
            names.update(case.needs)
    return [case for case in CASES if case.name in names]


def compare(table: dict[str, str], before: dict[str, str], partial: bool) -> int:
    """Print what differs between two tables and return the exit code."""
    names = table.keys() if partial else table.keys() | before.keys()
    differing = sorted(name for name in names if table.get(name) != before.get(name))
    for name in differing:
        print(f"DIFFERS  {name}: {str(before.get(name))[:16]} before, {str(table.get(name))[:16]} now")
    print(f"{len(names) - len(differing)} of {len(names)} equal")
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
