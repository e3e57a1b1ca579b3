"""The plain loops of pretrain_throughput.py, written with transformers alone.

Masked language modelling with next-sentence prediction: BertForPreTraining on pairs of segments, whole words masked by
DataCollatorForLanguageModeling. Replaced-token detection: ElectraForMaskedLM and ElectraForPreTraining with shared
embeddings, on consecutive sentences. Inputs are padded to the longest of a random batch; AdamW, gradients clipped at 1,
bf16 by autocast. Logits are those of all positions, as the stock models return them.
"""

import random
from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from distill_reference import forever
from distill_setting import CLIP, LEARNING_RATE, MASK_RATE, WARM_UP, StepTimes

if TYPE_CHECKING:
    from pretrain_throughput import Setting

DETECTION_WEIGHT = 50.0


def documents_of(setting: "Setting", tokenizer: Any) -> list[list[list[int]]]:
    """Return the token ids of the sentences of each document."""
    text = setting.corpus.read_text(encoding="utf-8")
    texts = [document.splitlines() for document in text.split("\n\n") if document.strip()]
    encoded = iter(tokenizer([line for text in texts for line in text], add_special_tokens=False)["input_ids"])
    return [[next(encoded) for _ in text] for text in texts]


def joined(documents: list[list[list[int]]], room: int) -> Iterator[list[int]]:
    """Join consecutive sentences of a document up to a number of tokens."""
    for document in documents:
        text: list[int] = []
        for sentence in document:
            if text and len(text) + len(sentence) > room:
                yield text[:room]
                text = []
            text = text + sentence
        if text:
            yield text[:room]


def pairs(documents: list[list[list[int]]], room: int) -> Iterator[tuple[list[int], list[int], int]]:
    """Make pairs of segments of at most `room` tokens; the second is from another document in half of them.

    As TextDatasetForNextSentencePrediction, which transformers had until version 4, without its shorter targets.
    """
    rng = random.Random(0)
    for document in documents:
        chunk: list[list[int]] = []
        for number, sentence in enumerate(document):
            chunk.append(sentence)
            full = sum(map(len, chunk)) >= room or number == len(document) - 1
            if not full or (len(chunk) == 1 and number < len(document) - 1):
                continue
            cut = rng.randint(1, max(1, len(chunk) - 1))
            first, second = _flat(chunk[:cut]), _flat(chunk[cut:])
            label = int(not second or rng.random() < 0.5)
            if label:
                other = rng.choice(documents)
                second = _flat(other[rng.randrange(len(other)) :])
            first = first[: room // 2] if len(first) + len(second) > room and len(first) > room // 2 else first
            yield first, second[: room - len(first)], label
            chunk = []


def _flat(sentences: list[list[int]]) -> list[int]:
    return list(chain.from_iterable(sentences))


def batches_of(setting: "Setting", tokenizer: Any) -> Any:
    """Return a DataLoader of masked batches in random order, padded to the longest of each batch."""
    from torch.utils.data import DataLoader
    from transformers import DataCollatorForLanguageModeling

    documents = documents_of(setting, tokenizer)
    if setting.objective == "rtd":
        texts = joined(documents, setting.length - 2)
        items: Any = [_item(tokenizer, text, None) for text in texts]
        shares: dict[str, Any] = {"mask_replace_prob": 0.85, "random_replace_prob": 0.0}
    else:
        items = [
            {**_item(tokenizer, first, second), "next_sentence_label": label}
            for first, second, label in pairs(documents, setting.length - 3)
        ]
        shares = {}
    whole_words = setting.objective == "mlm+nsp"
    collator = DataCollatorForLanguageModeling(
        tokenizer, mlm_probability=MASK_RATE, whole_word_mask=whole_words, **shares
    )
    mean = sum(len(item["input_ids"]) for item in items) / len(items)
    size = max(1, round(setting.tokens_per_step / mean))
    return DataLoader(
        items, size, shuffle=True, drop_last=True, collate_fn=lambda chosen: _collate(chosen, collator, whole_words)
    )


def _item(tokenizer: Any, first: list[int], second: list[int] | None) -> dict[str, Any]:
    ends = [tokenizer.cls_token_id, *first, tokenizer.sep_token_id]
    ids = ends if second is None else [*ends, *second, tokenizer.sep_token_id]
    types = [0] * len(ends) + [1] * (len(ids) - len(ends))
    return {"input_ids": ids, "token_type_ids": types, "attention_mask": [1] * len(ids)}


def _collate(items: list[dict[str, Any]], collator: Any, whole_words: bool) -> dict[str, Any]:
    """Pad and mask; the collator knows words by their offsets, where a word starts when the one before it ends."""
    batch = collator.tokenizer.pad(items, return_tensors="pt")
    ids = batch["input_ids"]
    special = [collator.tokenizer.get_special_tokens_mask(row, already_has_special_tokens=True) for row in ids.tolist()]
    offsets = _offsets(collator.tokenizer, ids) if whole_words else None
    import torch

    masked, labels = collator.torch_mask_tokens(ids, torch.tensor(special), offset_mapping=offsets)
    return {**batch, "input_ids": masked, "labels": labels}


def _offsets(tokenizer: Any, ids: Any) -> Any:
    """Return offsets (batch, length, 2) in which pieces of one word touch, and others do not."""
    import torch

    continues = torch.tensor(
        [token.startswith("##") for token in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))]
    )
    inside = continues[ids].long()
    starts = torch.arange(ids.shape[1]).expand_as(ids) * 2 - torch.cumsum(inside, dim=1)
    return torch.stack([starts, starts + 1], dim=-1)


def run(setting: "Setting") -> StepTimes:
    """Train with a plain loop and return the times of the steps."""
    import torch
    from transformers import AutoTokenizer, set_seed

    set_seed(setting.seed)
    tokenizer = AutoTokenizer.from_pretrained(setting.model)
    modules, loss_of = _detection(setting) if setting.objective == "rtd" else _masked(setting)
    parameters = list(modules.to(setting.device).train().parameters())
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE)
    times = StepTimes()
    for batch in islice(forever(batches_of(setting, tokenizer)), WARM_UP + setting.steps):
        tokens = int(batch["attention_mask"].sum())
        with setting.autocast():
            loss = loss_of({name: tensor.to(setting.device) for name, tensor in batch.items()})
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        times.step(tokens)
    return times


def _masked(setting: "Setting") -> tuple[Any, Any]:
    from transformers import BertForPreTraining

    model = BertForPreTraining.from_pretrained(setting.model)
    return model, lambda batch: model(**batch).loss


def _detection(setting: "Setting") -> tuple[Any, Any]:
    import torch
    from torch import nn
    from transformers import ElectraForMaskedLM, ElectraForPreTraining

    generator = ElectraForMaskedLM.from_pretrained(setting.model + "-generator")
    discriminator = ElectraForPreTraining.from_pretrained(setting.model)
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.tie_weights()

    def loss_of(batch: dict[str, Any]) -> Any:
        labels, masked = batch["labels"], batch["labels"] >= 0
        output = generator(**batch)
        with torch.no_grad():
            drawn = torch.multinomial(output.logits[masked].float().softmax(dim=-1), 1).squeeze(1)
            ids = batch["input_ids"].clone()
            ids[masked] = drawn
        replaced = (masked & (ids != labels)).long()
        inputs = {"input_ids": ids, "attention_mask": batch["attention_mask"]}
        return output.loss + DETECTION_WEIGHT * discriminator(**inputs, labels=replaced).loss

    return nn.ModuleList([generator, discriminator]), loss_of
