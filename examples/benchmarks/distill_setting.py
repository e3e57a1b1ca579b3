"""Shared parts of the engines of distill_throughput.py: settings, losses, timer, models and text."""

import json
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

VOCABULARY = 28_996
VOCABULARY_SENTENCES = 100_000
"""Sentences that the vocabulary is built from, however few are trained on."""
TEACHER: dict[str, Any] = {
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
WARM_UP = 2
"""Steps before the timer starts."""
MASK_RATE, LEARNING_RATE, CLIP = 0.15, 5e-4, 1.0


@dataclass(frozen=True)
class StudentLosses:
    """A student's losses: the name of the preset in biosqueeze, the weights, and the temperature."""

    preset: str
    mlm: float
    kl: float
    temperature: float
    cosine: float = 0.0
    """Cosine of the last hidden states."""
    layers: float = 0.0
    """Cosine of the hidden states and KL of the attention, summed over the layers."""

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs of compared layers, student's and teacher's, counted from 1; (-1, -1) are the last of both."""
        return tuple((i, 2 * i) for i in range(1, 7)) if self.layers else ((-1, -1),)


# Equations 4 and 9 of the compact-transformers paper with their published weights; the narrow student has a linear
# projection.
_DISTILBERT = StudentLosses("distilbert", mlm=2.0, kl=5.0, temperature=2.0, cosine=1.0)
STUDENTS = {
    "distil": _DISTILBERT,
    "compact": StudentLosses("compact", mlm=1.0, kl=5.0, temperature=1.0, layers=3.0),
    "tiny": _DISTILBERT,
}


@dataclass(frozen=True)
class Setting:
    """The settings of one run; all but the engine are equal in all engines."""

    engine: str
    student: str
    work: str
    length: int
    batch_size: int
    reference_batch: int | None
    steps: int
    precision: str
    device: str
    threads: int
    seed: int = 0

    @property
    def losses(self) -> StudentLosses:
        """The student's losses."""
        return STUDENTS[self.student]

    @property
    def corpus(self) -> Path:
        """The file of sentences, one per line."""
        return Path(self.work, "corpus.txt")

    def model(self, name: str) -> str:
        """Return the directory of `teacher` or of a student."""
        return str(Path(self.work, name))

    def autocast(self) -> AbstractContextManager[Any]:
        """Return a context of bf16 autocast, if the precision is bf16."""
        import torch

        return torch.autocast(self.device, torch.bfloat16) if self.precision == "bf16" else nullcontext()


@dataclass
class StepTimes:
    """End times and tokens of all steps; the first WARM_UP steps are not counted."""

    ended: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def step(self, tokens: int, ended: float | None = None) -> None:
        """Record the end of a step."""
        self.ended.append(time.time() if ended is None else ended)
        self.tokens.append(tokens)

    @property
    def span(self) -> tuple[float, float]:
        """Times of the end of the warm-up and of the last step."""
        return self.ended[WARM_UP - 1], self.ended[-1]

    def measured(self) -> dict[str, Any]:
        """Return steps, real tokens, seconds and speed after the warm-up."""
        tokens, steps = sum(self.tokens[WARM_UP:]), len(self.tokens) - WARM_UP
        seconds = self.span[1] - self.span[0]
        speed = tokens / seconds
        return {
            "steps": steps,
            "tokens": tokens,
            "seconds": seconds,
            "tokens_per_second": speed,
            "tokens_per_step": tokens / steps,
        }


def prepare(text: str, sentences: int, field_name: str, work: Path) -> None:
    """Write the corpus, the tokenizer, the teacher with random weights and the students, unless they exist.

    Raises:
        SystemExit: the directory was prepared from another text.
    """
    origin = {"text": str(Path(text).resolve()), "sentences": sentences, "field": field_name}
    done = work / "prepared.json"
    if done.exists():
        if json.loads(done.read_text(encoding="utf-8"))["of"] != origin:
            raise SystemExit(f"{work} was prepared with another text or number of sentences; give another --work")
        return
    from biosqueeze.data.text.corpus import read_lines

    work.mkdir(parents=True, exist_ok=True)
    lines = list(islice(read_lines(text, field_name), max(sentences, VOCABULARY_SENTENCES)))
    (work / "corpus.txt").write_text("\n".join(lines[:sentences]) + "\n", encoding="utf-8")
    tokenizer = make_tokenizer(lines[:VOCABULARY_SENTENCES])
    _write_models(tokenizer, work)
    lengths = _lengths(tokenizer, lines[:sentences])
    facts = {"of": origin, "lengths": lengths, "pieces_used": _distinct(tokenizer, lines[:sentences])}
    done.write_text(json.dumps(facts), encoding="utf-8")


def make_tokenizer(lines: list[str]) -> Any:
    """Train a cased WordPiece tokenizer on the text; fill its vocabulary up to 28,996 with unused tokens."""
    from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer
    from transformers import BertTokenizer

    trained = BertWordPieceTokenizer(lowercase=False, strip_accents=False)
    trained.train_from_iterator(iter(lines), vocab_size=VOCABULARY, show_progress=False)
    vocabulary: dict[str, int] = trained.get_vocab()
    for number in range(len(vocabulary), VOCABULARY):
        vocabulary[f"[unused{number}]"] = number
    return BertTokenizer(vocab=vocabulary, do_lower_case=False, strip_accents=False, model_max_length=512)


def _write_models(tokenizer: Any, work: Path) -> None:
    from transformers import BertConfig, BertForMaskedLM, set_seed

    from biosqueeze.checkpoint import open_checkpoint
    from biosqueeze.models.named.students import build_student

    set_seed(0)
    BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, **TEACHER)).save_pretrained(work / "teacher")
    tokenizer.save_pretrained(work / "teacher")
    teacher = open_checkpoint(str(work / "teacher"))
    for name in STUDENTS:
        build_student(teacher, name, seed=0, head="mlm").model.save_pretrained(work / name)
        tokenizer.save_pretrained(work / name)


def _lengths(tokenizer: Any, lines: list[str]) -> list[int]:
    return [len(ids) for ids in tokenizer(lines, return_attention_mask=False, verbose=False)["input_ids"]]


def _distinct(tokenizer: Any, lines: list[str]) -> int:
    return len({piece for ids in tokenizer(lines, verbose=False)["input_ids"] for piece in ids})


def sentence_lengths(setting: Setting) -> list[int]:
    """Return the number of tokens of each sentence with special tokens, at most the maximum length."""
    facts = json.loads(Path(setting.work, "prepared.json").read_text(encoding="utf-8"))
    return [min(length, setting.length) for length in facts["lengths"]]


def sentences_in_batch(setting: Setting) -> int:
    """Return how many sentences have, on average, the tokens of a batch of full blocks; or --reference-batch."""
    lengths = sentence_lengths(setting)
    return setting.reference_batch or max(1, round(setting.batch_size * setting.length * len(lengths) / sum(lengths)))
