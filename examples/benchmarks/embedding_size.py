"""F1 of a tagger by its embedding size, without training: see results/shrinking.md.

    python embedding_size.py NCBI_DISEASE --teacher TEACHER --seeds 3

A fine-tuned BERT is written as an ELECTRA whose embeddings have the hidden size: the same weights and outputs. Each
score is a file in OUT/records; runs that have one are skipped.
"""

import argparse
import shutil
from pathlib import Path

import torch
from importance_repair import f1_of
from stage_runs import StageRuns, mean_and_deviation
from transformers import AutoTokenizer, BertForTokenClassification, ElectraConfig, ElectraForTokenClassification

from biosqueeze.text_table import markdown

SAME_NAMES = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
    *("max_position_embeddings", "type_vocab_size", "layer_norm_eps", "pad_token_id", "id2label", "label2id"),
)


def main() -> None:
    """Write the ELECTRA, cut it, evaluate, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="directory of NER data")
    parser.add_argument("--teacher", type=Path, required=True, help="a BERT that was fine-tuned on them")
    parser.add_argument("--sizes", default="256,192,128,96,64")
    parser.add_argument("--seeds", type=int, default=1, help="samples of calibration data")
    parser.add_argument("--backend", default="torch:bf16", help="of the evaluations")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("embedding-size"))
    options = parser.parse_args()
    inputs = {"teacher": str(options.teacher), "backend": options.backend}
    runs = StageRuns(options.out, options.threads, inputs)
    electra = options.out / "checkpoints" / "electra"
    if not electra.exists():
        write_electra(options.teacher, electra)
    rows = [["384", f"{f1_of(runs, 'whole', electra, options.data, options.backend):.2f}", ""]]
    for size in options.sizes.split(","):
        alike = cut_f1(runs, options, f"{size}-alike", size)
        counted = [cut_f1(runs, options, f"{size}-{seed}", size, seed) for seed in range(options.seeds)]
        rows.append([size, f"{alike:.2f}", mean_and_deviation(counted)])
    print(markdown(["embedding size", "every token alike", "tokens of the data count most"], rows))


def write_electra(teacher: Path, target: Path) -> None:
    """Write a fine-tuned BERT as an ELECTRA of the same weights."""
    model = BertForTokenClassification.from_pretrained(teacher).eval()
    config = ElectraConfig(**{name: getattr(model.config, name) for name in SAME_NAMES})
    config.embedding_size = config.hidden_size
    electra = ElectraForTokenClassification(config).eval()
    electra.load_state_dict({name.replace("bert.", "electra.", 1): value for name, value in model.state_dict().items()})
    ids = torch.arange(1, 41).view(2, 20)
    mask = torch.ones_like(ids)
    mask[1, 12:] = 0
    outputs = [each(input_ids=ids, attention_mask=mask).logits[mask == 1] for each in (model, electra)]
    torch.testing.assert_close(*outputs)
    electra.save_pretrained(target)
    AutoTokenizer.from_pretrained(teacher).save_pretrained(target)


def cut_f1(runs: StageRuns, options: argparse.Namespace, name: str, size: str, seed: int | None = None) -> float:
    """Return the F1 of the ELECTRA with smaller embeddings; without a seed no data are read."""
    if runs.record(name) is None:
        data = () if seed is None else ("--calibration", str(options.data), "--seed", str(seed))
        cut = runs.make(name, "shrink", str(options.out / "checkpoints" / "electra"), "--embedding", size, *data)
        f1_of(runs, name, cut, options.data, options.backend)
        shutil.rmtree(cut)
    return f1_of(runs, name, options.out, options.data, options.backend)


if __name__ == "__main__":
    main()
