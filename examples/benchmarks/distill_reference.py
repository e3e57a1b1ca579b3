"""The plain loop of distill_throughput.py, written with transformers alone.

Teacher and student are BertForMaskedLM, with the logits of all positions. Sentences are padded to the longest of a
random batch; DataCollatorForLanguageModeling, AdamW, gradients clipped at 1, bf16 by autocast. The losses follow the
formulas: a softmax over all rows, of which the masked ones are then selected (`reference-masked` selects the rows
first). Attention maps come from eager attention.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from distill_setting import (
    CLIP,
    LEARNING_RATE,
    MASK_RATE,
    WARM_UP,
    Setting,
    StepTimes,
    StudentLosses,
    sentences_in_batch,
)


def load_pair(setting: Setting) -> tuple[Any, Any]:
    """Load the student in training mode and the frozen teacher; with eager attention where its maps are compared."""
    from transformers import BertForMaskedLM, set_seed

    set_seed(setting.seed)
    attention = "eager" if setting.losses.layers else "sdpa"
    student: Any = BertForMaskedLM.from_pretrained(setting.model(setting.student), attn_implementation=attention)
    teacher: Any = BertForMaskedLM.from_pretrained(setting.model("teacher"), attn_implementation=attention)
    teacher.requires_grad_(requires_grad=False)
    return student.to(setting.device).train(), teacher.to(setting.device).eval()


def padded_batches(setting: Setting) -> Any:
    """Return a DataLoader over the sentences in random order, masked and padded to the longest of each batch."""
    from torch.utils.data import DataLoader
    from transformers import AutoTokenizer, DataCollatorForLanguageModeling

    tokenizer = AutoTokenizer.from_pretrained(setting.model("teacher"))
    lines = setting.corpus.read_text(encoding="utf-8").splitlines()
    items: Any = [
        {"input_ids": ids} for ids in tokenizer(lines, truncation=True, max_length=setting.length)["input_ids"]
    ]
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=MASK_RATE)
    return DataLoader(
        items, sentences_in_batch(setting), shuffle=True, drop_last=True, collate_fn=lambda items: dict(collator(items))
    )


def forever(batches: Any) -> Iterator[dict[str, Any]]:
    """Yield the batches of endless epochs."""
    while True:
        yield from batches


def run(setting: Setting, *, select_first: bool = False) -> StepTimes:
    """Train with the plain loop and return the times of the steps."""
    import torch
    from torch import nn

    student, teacher = load_pair(setting)
    student_width, teacher_width = student.config.hidden_size, teacher.config.hidden_size
    same_width = student_width == teacher_width
    projection = (nn.Identity() if same_width else nn.Linear(student_width, teacher_width)).to(setting.device)
    parameters = [*student.parameters(), *projection.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE)
    batches, times = padded_batches(setting), StepTimes()
    for batch in islice(forever(batches), WARM_UP + setting.steps):
        tokens = int(batch["attention_mask"].sum())
        moved = {name: tensor.to(setting.device) for name, tensor in batch.items()}
        with setting.autocast():
            loss = textbook_loss(setting.losses, (student, teacher, projection), moved, select_first=select_first)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        times.step(tokens)
    return times


def textbook_loss(
    losses: StudentLosses, models: tuple[Any, Any, Any], batch: dict[str, Any], *, select_first: bool
) -> Any:
    """Compute the weighted losses of one batch; models are student, teacher and projection. Scalar."""
    import torch
    from torch.nn import functional

    student, teacher, projection = models
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    outputs = {"output_hidden_states": True, "output_attentions": bool(losses.layers)}
    student_out = student(**inputs, **outputs)
    with torch.no_grad():
        teacher_out = teacher(**inputs, **outputs)
    real, labels = batch["attention_mask"].bool(), batch["labels"]  # (batch, length) each
    logits = student_out.logits.float()  # (batch, length, vocabulary)
    mlm = functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    kl = _kl(logits, teacher_out.logits.float(), labels >= 0, losses.temperature, select_first)
    layers = torch.zeros((), device=real.device)
    for student_layer, teacher_layer in losses.pairs:
        layers = layers + _cosine(
            projection(student_out.hidden_states[student_layer]), teacher_out.hidden_states[teacher_layer], real
        )
        if losses.layers:
            layers = layers + _attention_kl(
                student_out.attentions[student_layer - 1], teacher_out.attentions[teacher_layer - 1], real
            )
    return losses.mlm * mlm + losses.kl * kl + (losses.layers or losses.cosine) * layers


def _kl(student: Any, teacher: Any, masked: Any, temperature: float, select_first: bool) -> Any:
    """Compute KL over the masked rows: logits (batch, length, vocabulary), masked (batch, length)."""
    from torch.nn import functional

    if select_first:
        student, teacher, masked = student[masked], teacher[masked], slice(None)
    log_p = functional.log_softmax(student / temperature, dim=-1)
    q = functional.softmax(teacher / temperature, dim=-1)
    return functional.kl_div(log_p, q, reduction="none").sum(-1)[masked].mean() * temperature**2


def _cosine(student: Any, teacher: Any, real: Any) -> Any:
    """Compute 1 - cosine over real tokens: states (batch, length, hidden)."""
    from torch.nn import functional

    return (1 - functional.cosine_similarity(student.float(), teacher.float(), dim=-1))[real].mean()


def _attention_kl(student: Any, teacher: Any, real: Any) -> Any:
    """Compute KL over real queries: probabilities (batch, heads, query, key)."""
    log_p, log_q = student.float().clamp_min(1e-9).log(), teacher.float().clamp_min(1e-9).log()
    divergence = (teacher.float() * (log_q - log_p)).sum(-1)  # (batch, heads, query)
    return divergence.mean(1)[real].mean()
