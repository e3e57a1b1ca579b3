"""Cut the vocabulary of two taggers to the tokens of biomedical text: size, F1, and speed of encoding.

    python vocabulary_cut.py --data DATA --out cut

DATA holds ncbi-disease, bc5cdr-disease, bc5cdr-chem and pubmed-abstracts. The taggers are MiniLM (WordPiece) and a
small XLM-RoBERTa from random weights with a Unigram vocabulary of 100,000 pieces, both fine-tuned on NCBI-disease. What
is kept never depends on the test split. Finished steps are skipped; the table goes to standard output.
"""

import argparse
import gzip
import itertools
import json
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stage_runs import StageRuns

TASKS = ("ncbi-disease", "bc5cdr-disease", "bc5cdr-chem")
ABSTRACTS = "pubmed-abstracts/pubmed_abstracts.txt.gz"
MINILM = ("demo:minilm", "--lr", "2e-4", "--steps", "300", "--eval-every", "300")
XLM_ROBERTA = ("--lr", "1e-3", "--epochs", "1")
LEARNED, PIECES = 30_000, 100_000
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
# Letters of the words of other languages, of which most of XLM-RoBERTa's pieces are.
SCRIPTS = (
    "abcdefghijklmnopqrstuvwxyz\u00e4\u00f6\u00fc\u00e9\u00e8\u00f1\u00e7\u0142\u0161",
    "".join(map(chr, range(0x430, 0x450))),
    "".join(map(chr, range(0x3B1, 0x3CA))),
    "".join(map(chr, range(0x4E00, 0x5600))),
)
ENCODED_LINES = 2_000


@dataclass(frozen=True)
class Tagger:
    """A fine-tuned checkpoint, and the numbers of tokens of its further cuts."""

    name: str
    path: Path
    sizes: tuple[int, ...] = ()


def build_xlm_roberta(runs: StageRuns, data: Path) -> Path:
    """Write an XLM-RoBERTa of two layers x 128 with random weights; the tokenizer has learned and invented pieces."""
    import torch
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaForMaskedLM

    out = runs.out / "checkpoints" / "xlm-roberta"
    if (out / "model.safetensors").exists():
        return out
    options = ("--kind", "unigram", "--size", str(LEARNED), "--sample-mb", "5", "--limit-alphabet", "500")
    learned = runs.make("pieces", "vocab", str(data / ABSTRACTS), *options)
    vocabulary = json.loads((learned / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    scored = [(piece, score) for piece, score in vocabulary if piece[0] not in "<["]
    core = Tokenizer(models.Unigram([(token, 0.0) for token in SPECIAL] + _with_invented(scored), unk_id=3))
    core.normalizer = normalizers.NFKC()
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    core.decoder = decoders.Metaspace()
    core.add_special_tokens([*SPECIAL, "<mask>"])
    core.post_processor = processors.TemplateProcessing(
        "<s> $A </s>", "<s> $A </s> </s> $B </s>", [("<s>", 0), ("</s>", 2)]
    )
    roles = dict(zip(("bos", "pad", "eos", "unk"), SPECIAL, strict=True)) | {
        "cls": "<s>",
        "sep": "</s>",
        "mask": "<mask>",
    }
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, model_max_length=512, **{f"{role}_token": token for role, token in roles.items()}
    )
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 512,
    }
    config = XLMRobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=514, type_vocab_size=1, **sizes)
    XLMRobertaForMaskedLM(config).save_pretrained(out)
    tokenizer.save_pretrained(out)
    return out


def _with_invented(learned: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return learned pieces, and invented ones between them in likelihood, the likeliest first."""
    known = {piece for piece, _ in learned}
    rng = random.Random(0)
    scores = sorted(score for _, score in learned)
    invented: dict[str, float] = {}
    for piece in itertools.chain("".join(SCRIPTS), _words(rng)):
        if len(known) + len(invented) + len(SPECIAL) + 1 >= PIECES:
            break
        if piece not in known:
            invented[piece] = rng.choice(scores[: len(scores) // 2])
    return sorted([*learned, *invented.items()], key=lambda scored: (-scored[1], scored[0]))


def _words(rng: random.Random) -> Iterator[str]:
    """Yield invented words and parts of words."""
    while True:
        letters = rng.choice(SCRIPTS)
        word = "".join(rng.choices(letters, k=rng.randint(2, 8)))
        yield f"\u2581{word}" if rng.random() < 0.5 else word


def cuts_of(runs: StageRuns, tagger: Tagger, data: Path) -> dict[str, Path]:
    """Cut the vocabulary of a tagger; return the checkpoints by what is kept."""
    corpora = [*(str(data / task) for task in TASKS), str(data / ABSTRACTS)]
    keep = [word for corpus in corpora for word in ("--vocab-keep", corpus)]
    occurring = runs.make(f"{tagger.name}-occurring", "shrink", str(tagger.path), *keep)
    frequent = {
        f"{size:,} most frequent": runs.make(
            f"{tagger.name}-{size}", "shrink", str(tagger.path), *keep, "--vocab-size", str(size)
        )
        for size in tagger.sizes
    }
    return {"all": tagger.path, "what occurs": occurring, **frequent}


@dataclass(frozen=True)
class Test:
    """The test split of NCBI-disease."""

    task: Any
    examples: Sequence[Any]

    @classmethod
    def of(cls, path: Path, data: Path) -> "Test":
        """Read it for a tagger."""
        from biosqueeze.checkpoint import open_checkpoint
        from biosqueeze.finetuning.finetuned_checkpoint import task_of

        _, task = task_of(open_checkpoint(str(path)), None, "to score")
        return cls(task, task.read(str(data / TASKS[0]), ("test",)).splits["test"])

    def predict(self, path: Path) -> list[Any]:
        """Return the tags that a checkpoint predicts."""
        from biosqueeze.checkpoint import open_checkpoint
        from biosqueeze.finetuning.task_model import InferenceSettings, load_task_model

        settings = InferenceSettings(backend="torch", batch_size=32, max_length=None, threads=1, device="cpu")
        predicted = load_task_model(open_checkpoint(str(path)), self.task, settings).predict(self.examples)
        return [list(tags) for tags in predicted]

    def tokens(self, path: Path) -> list[list[str]]:
        """Return the tokens of each sentence."""
        from transformers import AutoTokenizer

        tokenizer: Any = AutoTokenizer.from_pretrained(path)
        ids = tokenizer([list(each.words) for each in self.examples], is_split_into_words=True)["input_ids"]
        return [tokenizer.convert_ids_to_tokens(row) for row in ids]

    def f1(self, predicted: Sequence[Any]) -> float:
        """Return the entity-level F1."""
        return float(self.task.score([each.gold for each in self.examples], predicted)["f1"])


def encoding_speed(path: Path, lines: Sequence[str]) -> float:
    """Return tokens per second of processor time of encoding some lines, the best of three times."""
    from tokenizers import Tokenizer

    core = Tokenizer.from_file(str(path / "tokenizer.json"))
    core.no_truncation()
    seconds, tokens = [], 0
    for _ in range(3):
        start = time.process_time()
        tokens = sum(len(encoding.ids) for encoding in core.encode_batch(list(lines), add_special_tokens=False))
        seconds.append(time.process_time() - start)
    return tokens / min(seconds)


def measure(runs: StageRuns, name: str, path: Path, test: Test, data: Path) -> dict[str, Any]:
    """Return what one checkpoint measures."""
    if (known := runs.record(name)) is not None:
        return known
    int8 = runs.make(f"{name}-int8", "quantize", str(path))
    with gzip.open(data / ABSTRACTS, "rt", encoding="utf-8") as file:
        lines = list(itertools.islice((line.strip() for line in file if line.strip()), ENCODED_LINES))
    model = json.loads((int8 / "biosqueeze.json").read_text(encoding="utf-8"))["model"]
    result = {
        "parameters": model["parameters"]["total"],
        "vocabulary": model["shape"]["vocabulary"],
        "megabytes": (path / "model.safetensors").stat().st_size / 1e6,
        "int8": (int8 / "onnx" / "model_quantized.onnx").stat().st_size / 1e6,
        "speed": encoding_speed(path, lines),
        "predicted": test.predict(path),
        "tokens": test.tokens(path),
    }
    shutil.rmtree(int8)
    return runs.save_record(name, result)


def print_rows(runs: StageRuns, tagger: Tagger, data: Path) -> None:
    """Print a row for the tagger and for each of its cuts."""
    test = Test.of(tagger.path, data)
    measured = {
        kept: measure(runs, f"{tagger.name}-{number}", path, test, data)
        for number, (kept, path) in enumerate(cuts_of(runs, tagger, data).items())
    }
    whole = measured["all"]
    for kept, result in measured.items():
        same = [one == other for one, other in zip(result["tokens"], whole["tokens"], strict=True)]
        pairs = zip(result["predicted"], whole["predicted"], same, strict=True)
        equal = sum(one == other for one, other, is_same in pairs if is_same)
        row = (
            tagger.name,
            kept,
            f"{result['vocabulary']:,}",
            f"{result['parameters'] / 1e6:.2f}",
            f"{result['megabytes']:.1f}",
            f"{result['int8']:.1f}",
            f"{test.f1(result['predicted']):.4f}",
            f"{sum(same)} of {len(same)}",
            f"{equal}",
            f"{result['speed'] / 1e3:,.0f}",
        )
        print("| " + " | ".join(row) + " |", flush=True)


def main() -> None:
    """Fine-tune, cut and measure the two taggers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data: Path = arguments.data
    runs = StageRuns(arguments.out, 1, {"data": str(data)})
    labelled = ("--data", str(data / TASKS[0]))
    minilm = runs.make("MiniLM", "finetune", MINILM[0], *labelled, *MINILM[1:])
    print_rows(runs, Tagger("MiniLM", minilm, (8_000,)), data)
    start = build_xlm_roberta(runs, data)
    multilingual = runs.make("XLM-RoBERTa", "finetune", str(start), *labelled, *XLM_ROBERTA)
    print_rows(runs, Tagger("XLM-RoBERTa", multilingual), data)


if __name__ == "__main__":
    main()
