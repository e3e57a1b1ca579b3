"""biosqueeze beside plain torch-pruning, at the same budget: F1 kept, and whether stock transformers loads the result.

    python plain_torch_pruning.py NCBI_DISEASE --out plain

MiniLM (6 layers x 384, 12 heads, ffn 1536) is fine-tuned on the data. torch-pruning cuts it in the way of its own BERT
example: a MetaPruner with group magnitude importance, one ratio for all channels and for heads, ranked over all layers
or (uniform) in each; the pruned module is saved with save_pretrained, its config with the sizes that one can write.
biosqueeze cuts to the number of parameters that was left: `shrink --params`, without and with data and repair. Finished
runs are skipped.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import torch_pruning as tp
from importance_repair import f1_of, fine_tune
from stage_runs import StageRuns

from biosqueeze.text_table import markdown

LOADS = """
import sys, transformers
transformers.utils.logging.set_verbosity_error()
model, info = transformers.AutoModelForTokenClassification.from_pretrained(sys.argv[1], output_loading_info=True)
wrong = [*info["missing_keys"], *info["unexpected_keys"], *info["mismatched_keys"]]
sys.exit(f"{len(wrong)} tensors do not fit" if wrong else 0)
"""
HEADER = ("cut by", "parameters", "F1", "stock transformers loads it")


def main() -> None:
    """Cut, score, and print the table."""
    options = parse()
    runs = StageRuns(options.out, options.threads, {"data": str(options.data)})
    teacher = options.teacher or fine_tune(runs, options.data, options.teacher_steps)
    rows = [row(runs, "teacher", "nothing: the teacher", teacher, options)]
    for ratio in options.ratios.split(","):
        for uniform in (False, True):
            words = f"torch-pruning, {ratio} of all channels, {'uniform' if uniform else 'global'}"
            name = f"plain-{ratio}-{'uniform' if uniform else 'global'}"
            known = runs.record(name) or runs.save_record(
                name, prune(runs.out / "checkpoints" / name, teacher, float(ratio), uniform, options)
            )
            f1 = f"{100 * known['f1']:.2f}" if known["f1"] is not None else known["error"]
            rows.append([words, f"{known['parameters'] / 1e6:.2f}M", f1, known["loads"]])
            print(" | ".join(rows[-1]), flush=True)
        for data in (False, True):
            rows.append(ours(runs, options, teacher, known["parameters"], data=data))
            print(" | ".join(rows[-1]), flush=True)
    table = markdown(list(HEADER), rows)
    (options.out / "table.md").write_text(table + "\n", encoding="utf-8")
    print(table)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="directory of NCBI-disease")
    parser.add_argument("--out", type=Path, default=Path("plain-torch-pruning"))
    parser.add_argument("--teacher", type=Path, help="a MiniLM that is fine-tuned on the data")
    parser.add_argument("--teacher-steps", default="600", help="of the fine-tuning")
    parser.add_argument("--ratios", default="0.25,0.5", help="of channels and of heads that are cut")
    parser.add_argument("--examples", type=int, help="score the plain cuts on the first examples only")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def prune(target: Path, teacher: Path, ratio: float, uniform: bool, options: argparse.Namespace) -> dict[str, Any]:
    """Cut and save a teacher by torch-pruning alone; return parameters, F1, and whether stock transformers loads it."""
    from biosqueeze.checkpoint import open_checkpoint
    from biosqueeze.models.loading.load import load_model, load_tokenizer

    torch.set_num_threads(options.threads)
    checkpoint = open_checkpoint(str(teacher))
    model, tokenizer = load_model(checkpoint).model, load_tokenizer(checkpoint)
    _prune_channels(model, dict(tokenizer("BRCA1 in breast cancer", return_tensors="pt")), ratio, uniform=uniform)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    try:
        f1, error = _score(model, tokenizer, checkpoint, options), ""
    except RuntimeError as failure:
        f1, error = None, f"does not run: {str(failure).splitlines()[0]}"
    return {"parameters": parameters, "f1": f1, "error": error, "loads": loads(target)}


def _prune_channels(model: Any, example: dict[str, torch.Tensor], ratio: float, *, uniform: bool) -> None:
    """Cut channels and heads in place, and set the sizes of the attention modules and of the config."""
    attention = [module for name, module in model.named_modules() if name.endswith("attention.self")]
    heads = {getattr(each, part): each.num_attention_heads for each in attention for part in ("query", "key", "value")}
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    pruner = tp.pruner.MetaPruner(
        model,
        example,
        importance=tp.importance.GroupMagnitudeImportance(p=2, group_reduction="mean"),
        global_pruning=not uniform,
        pruning_ratio=ratio,
        head_pruning_ratio=ratio,
        num_heads=heads,
        prune_num_heads=True,
        prune_head_dims=False,
        ignored_layers=[model.classifier],
        output_transform=lambda output: output.logits.sum(),
    )
    pruner.step()
    for each in attention:
        each.num_attention_heads = pruner.num_heads[each.query]
        each.all_head_size = each.query.out_features
        each.attention_head_size = each.all_head_size // each.num_attention_heads
    first: Any = model.base_model.encoder.layer[0]
    model.config.hidden_size = model.get_input_embeddings().embedding_dim
    model.config.num_attention_heads = attention[0].num_attention_heads
    model.config.intermediate_size = first.intermediate.dense.out_features


@torch.no_grad()
def _score(model: Any, tokenizer: Any, checkpoint: Any, options: argparse.Namespace) -> float:
    """Return the F1 of a model in memory on the test split."""
    from biosqueeze.data.collate import pad
    from biosqueeze.finetuning.finetuned_checkpoint import task_of

    _, task = task_of(checkpoint, None, "to score")
    examples = task.read(str(options.data), ("test",)).splits["test"][: options.examples]
    windows = task.encode(examples, checkpoint.labels, tokenizer, 256)
    logits = []
    for window in windows:
        batch = pad([window.features], tokenizer.pad_token_id)
        inputs = {name: torch.from_numpy(batch[name]) for name in ("input_ids", "attention_mask")}
        logits.append(model.eval()(**inputs).logits[0].numpy())
    predicted = task.decode(windows, logits, examples, checkpoint.labels)
    return float(task.score([each.gold for each in examples], predicted)["f1"])


def loads(path: Path) -> str:
    """Load a directory with stock transformers in a fresh process; say how that ends."""
    command = [sys.executable, "-c", LOADS, str(path)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    last = process.stderr.strip().splitlines()[-1:] or [""]
    return "yes" if process.returncode == 0 else f"no: {last[0][:80]}"


def ours(runs: StageRuns, options: argparse.Namespace, teacher: Path, parameters: int, *, data: bool) -> list[str]:
    """Cut by biosqueeze to at most so many parameters, by magnitude or by data with repair."""
    choice = ("--calibration", str(options.data)) if data else ("--importance", "magnitude")
    name = f"ours-{parameters}-{'data' if data else 'magnitude'}"
    cut = runs.make(name, "shrink", str(teacher), "--params", str(parameters), *choice)
    return row(runs, name, "biosqueeze, by data and repaired" if data else "biosqueeze, by magnitude", cut, options)


def row(runs: StageRuns, name: str, words: str, checkpoint: Path, options: argparse.Namespace) -> list[str]:
    """Return the row of a checkpoint that biosqueeze wrote."""
    manifest = json.loads((checkpoint / "biosqueeze.json").read_text(encoding="utf-8"))
    total = manifest["model"]["parameters"]["total"]
    f1 = f1_of(runs, name, checkpoint, options.data)
    return [words, f"{total / 1e6:.2f}M", f"{f1:.2f}", loads(checkpoint)]


if __name__ == "__main__":
    main()
