"""The plain loop of distill_throughput.py, as one writes it with transformers alone.

BertForMaskedLM as teacher and student, each with the logits of all positions; sentences padded to the longest of a
random batch, DataCollatorForLanguageModeling, AdamW, gradients clipped at 1, bf16 by autocast. The losses are computed
as the formulas read: a softmax over all rows, of which the masked ones are then taken (`reference-masked` takes the
rows first). Attention maps come from eager attention.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from distill_setting import CLIP, LEARNING_RATE, MASK_RATE, WARM_UP, LossPreset, Setting, Watch, sentences_in_batch


def load_pair(setting: Setting) -> tuple[Any, Any]:
    """Student in training mode and frozen teacher, on the device; eager attention where its maps are compared."""
    from transformers import BertForMaskedLM, set_seed

    set_seed(setting.seed)
    attention = "eager" if setting.mix.layers else "sdpa"
    student = BertForMaskedLM.from_pretrained(setting.model(setting.student), attn_implementation=attention)
    teacher = BertForMaskedLM.from_pretrained(setting.model("teacher"), attn_implementation=attention)
    teacher.requires_grad_(requires_grad=False)
    return student.to(setting.device).train(), teacher.to(setting.device).eval()


def padded_batches(setting: Setting) -> Any:
    """A DataLoader over the sentences in random order, masked and padded to the longest of each batch."""
    from torch.utils.data import DataLoader
    from transformers import AutoTokenizer, DataCollatorForLanguageModeling

    tokenizer = AutoTokenizer.from_pretrained(setting.model("teacher"))
    lines = setting.corpus.read_text(encoding="utf-8").splitlines()
    items = [{"input_ids": ids} for ids in tokenizer(lines, truncation=True, max_length=setting.length)["input_ids"]]
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=MASK_RATE)
    return DataLoader(
        items, sentences_in_batch(setting), shuffle=True, drop_last=True, collate_fn=lambda some: dict(collator(some))
    )


def forever(batches: Any) -> Iterator[dict[str, Any]]:
    """Epoch after epoch."""
    while True:
        yield from batches


def run(setting: Setting, *, select_first: bool = False) -> Watch:
    """The plain loop."""
    import torch
    from torch import nn

    student, teacher = load_pair(setting)
    narrow, wide = student.config.hidden_size, teacher.config.hidden_size
    projection = (nn.Linear(narrow, wide) if narrow != wide else nn.Identity()).to(setting.device)
    parameters = [*student.parameters(), *projection.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE)
    batches, watch = padded_batches(setting), Watch()
    for batch in islice(forever(batches), WARM_UP + setting.steps):
        tokens = int(batch["attention_mask"].sum())
        moved = {name: tensor.to(setting.device) for name, tensor in batch.items()}
        with setting.autocast():
            loss = textbook_loss(setting.mix, (student, teacher, projection), moved, select_first=select_first)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        watch.step(tokens)
    return watch


def textbook_loss(mix: LossPreset, models: tuple[Any, Any, Any], batch: dict[str, Any], *, select_first: bool) -> Any:
    """The weighted losses of one batch; models are student, teacher and projection. Scalar."""
    import torch
    from torch.nn import functional

    student, teacher, projection = models
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    wanted = {"output_hidden_states": True, "output_attentions": bool(mix.layers)}
    said = student(**inputs, **wanted)
    with torch.no_grad():
        taught = teacher(**inputs, **wanted)
    real, labels = batch["attention_mask"].bool(), batch["labels"]  # (batch, length) each
    logits = said.logits.float()  # (batch, length, vocabulary)
    mlm = functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    kl = _kl(logits, taught.logits.float(), labels >= 0, mix.temperature, select_first)
    inner = torch.zeros((), device=real.device)
    for ours, theirs in mix.pairs:
        inner = inner + _cosine(projection(said.hidden_states[ours]), taught.hidden_states[theirs], real)
        if mix.layers:
            inner = inner + _attention_kl(said.attentions[ours - 1], taught.attentions[theirs - 1], real)
    return mix.mlm * mlm + mix.kl * kl + (mix.layers or mix.cosine) * inner


def _kl(student: Any, teacher: Any, masked: Any, temperature: float, select_first: bool) -> Any:
    """Logits (batch, length, vocabulary), masked (batch, length)."""
    from torch.nn import functional

    if select_first:
        student, teacher, masked = student[masked], teacher[masked], slice(None)
    log_p = functional.log_softmax(student / temperature, dim=-1)
    q = functional.softmax(teacher / temperature, dim=-1)
    return functional.kl_div(log_p, q, reduction="none").sum(-1)[masked].mean() * temperature**2


def _cosine(student: Any, teacher: Any, real: Any) -> Any:
    """States (batch, length, hidden)."""
    from torch.nn import functional

    return (1 - functional.cosine_similarity(student.float(), teacher.float(), dim=-1))[real].mean()


def _attention_kl(student: Any, teacher: Any, real: Any) -> Any:
    """Probabilities (batch, heads, query, key)."""
    log_p, log_q = student.float().clamp_min(1e-9).log(), teacher.float().clamp_min(1e-9).log()
    each = (teacher.float() * (log_q - log_p)).sum(-1)  # (batch, heads, query)
    return each.mean(1)[real].mean()
