"""The section of a card that shows how the model is used: code that runs as it stands."""

import json
import shlex
from pathlib import Path

from biosqueeze.card.markdown import fenced, html_block
from biosqueeze.card.pretraining import STAGE, is_discriminator
from biosqueeze.manifest import Manifest

_TEXT = "Aspirin reduces fever in patients with influenza."
_SECOND_TEXT = "Fever is treated with aspirin."
_EXAMPLE_QUESTION = "What does aspirin reduce?"
_PIPELINE = """\
from transformers import pipeline

model = pipeline({task}, model={name}{more})
print(model({text}))"""
_FILL_MASK = """\
from transformers import pipeline

model = pipeline("fill-mask", model={name})
print(model(f"Aspirin reduces {{model.tokenizer.mask_token}} in patients with influenza."))"""
_ENCODER = """\
import torch
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({name})
model = AutoModel.from_pretrained({name})
with torch.inference_mode():
    states = model(**tokenizer({text}, return_tensors="pt")).last_hidden_state
print(states.shape)"""
_DISCRIMINATOR = """\
import torch
from transformers import AutoTokenizer, ElectraForPreTraining

tokenizer = AutoTokenizer.from_pretrained({name})
model = ElectraForPreTraining.from_pretrained({name})
inputs = tokenizer({text}, return_tensors="pt")
with torch.inference_mode():
    logits = model(**inputs).logits[0]
for token, logit in zip(tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]), logits, strict=True):
    print(token, "replaced" if logit > 0 else "original")"""
_QUESTION = """\
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({name})
model = AutoModelForQuestionAnswering.from_pretrained({name})
inputs = tokenizer({question}, {text}, return_tensors="pt")
with torch.inference_mode():
    output = model(**inputs)
start, end = output.start_logits.argmax(), output.end_logits.argmax()
print(tokenizer.decode(inputs["input_ids"][0, start : end + 1]))"""
_ONNX = """\
import json
from pathlib import Path

import numpy as np
import onnxruntime
{download}from tokenizers import Tokenizer

folder = Path({folder})
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
session = onnxruntime.InferenceSession(folder / {file}, providers=["CPUExecutionProvider"])
encoding = tokenizer.encode({text})
values = {{
    "input_ids": encoding.ids,
    "attention_mask": encoding.attention_mask,
    "token_type_ids": encoding.type_ids,
}}
inputs = {{each.name: np.array([values[each.name]], dtype=np.int64) for each in session.get_inputs()}}
outputs = session.run(None, inputs)
{result}"""
_ONNX_RESULTS = {
    "token-classification": """\
labels = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("id2label", {})
print([(token, labels.get(str(best), best)) for token, best in zip(encoding.tokens, outputs[0][0].argmax(-1))])""",
    "sequence-classification": """\
labels = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("id2label", {})
print({labels.get(str(index), index): float(value) for index, value in enumerate(outputs[0][0])})""",
    # Graphs of other tools have an output for starts and one for ends.
    "question-answering": """\
start, end = np.stack(outputs, axis=-1).reshape(-1, 2).argmax(axis=0)
print(tokenizer.decode(encoding.ids[start : end + 1]))""",
}
# What `predict` reads for tasks on more than one text.
_RECORDS = {
    "relation": {"text": _TEXT, "head": {"start": 0, "end": 7}, "tail": {"start": 16, "end": 21}},
    "similarity": {"sentence1": _TEXT, "sentence2": _SECOND_TEXT},
}
_PAIR_TASKS = ("nli", "similarity")
_GRAPHS = ("onnx/model_quantized.onnx", "onnx/model.onnx")


def usage_block(name: str, manifest: Manifest, directory: Path, *, on_hub: bool = False) -> str:
    """Return the section with one example for each way in which the model can be loaded.

    Args:
        name: what the examples load: the name of the directory, or the id on the Hub.
        manifest: of the checkpoint.
        directory: whose files determine the examples.
        on_hub: whether the name is an id on the Hub.
    """
    examples = []
    graph = next((file for file in _GRAPHS if (directory / file).is_file()), None)
    has_weights = any(directory.glob("model*.safetensors"))
    # The texts of a relation are marked as the fine-tuning marked them, which only `predict` does.
    by_biosqueeze = bool(manifest.custom_head) or _task_of(manifest) == "relation"
    if by_biosqueeze and (has_weights or graph):
        examples.append(_with_biosqueeze(name, manifest))
    elif has_weights:
        examples.append(_with_transformers(name, manifest))
    if graph and (directory / "tokenizer.json").is_file() and not by_biosqueeze:
        examples.append(_with_onnxruntime(name, manifest, graph, on_hub=on_hub))
    if manifest.stage == STAGE:
        examples.append(_next_step(name))
    return html_block("usage", "\n\n".join(["## How to use it", *examples]) if examples else "")


def _kind(manifest: Manifest) -> str:
    """Return the head; that of a discriminator has an example of its own."""
    return "discriminator" if is_discriminator(manifest) else manifest.head


def _next_step(name: str) -> str:
    return f"Next, fine-tune it:\n\n{fenced(f'biosqueeze finetune {shlex.quote(name)} --data DIRECTORY', 'shell')}"


def _task_of(manifest: Manifest) -> str:
    return manifest.task.name if manifest.task else ""


def _with_transformers(name: str, manifest: Manifest) -> str:
    pair = json.dumps({"text": _TEXT, "text_pair": _SECOND_TEXT})
    values = {"name": _quoted(name), "text": pair if _task_of(manifest) in _PAIR_TASKS else _quoted(_TEXT)}
    match _kind(manifest):
        case "token-classification":
            code = _PIPELINE.format(task='"token-classification"', more=', aggregation_strategy="first"', **values)
        case "sequence-classification":
            code = _PIPELINE.format(task='"text-classification"', more=", top_k=None", **values)
        case "question-answering":
            code = _QUESTION.format(question=_quoted(_EXAMPLE_QUESTION), **values)
        case "mlm":
            code = _FILL_MASK.format(**values)
        case "discriminator":
            code = _DISCRIMINATOR.format(**values)
        case _:
            code = _ENCODER.format(**values)
    return fenced(code, "python")


def _with_biosqueeze(name: str, manifest: Manifest) -> str:
    record = _RECORDS.get(_task_of(manifest))
    line = json.dumps(record) if record else _TEXT
    return fenced(f"echo {shlex.quote(line)} | biosqueeze predict {shlex.quote(name)} -", "shell")


def _with_onnxruntime(name: str, manifest: Manifest, graph: str, *, on_hub: bool) -> str:
    texts = [_TEXT, _SECOND_TEXT] if _task_of(manifest) in _PAIR_TASKS else [_TEXT]
    if manifest.head == "question-answering":
        texts = [_EXAMPLE_QUESTION, _TEXT]
    code = _ONNX.format(
        folder=f"snapshot_download({_quoted(name)})" if on_hub else _quoted(name),
        download="from huggingface_hub import snapshot_download\n" if on_hub else "",
        file=_quoted(graph),
        text=", ".join(map(_quoted, texts)),
        result=_ONNX_RESULTS.get(manifest.head, "print(outputs[0].shape)"),
    )
    kind = "int8" if graph == _GRAPHS[0] else "ONNX"
    packages = "numpy, tokenizers, huggingface_hub and onnxruntime" if on_hub else "numpy, tokenizers and onnxruntime"
    return f"The {kind} model needs {packages} only:\n\n{fenced(code, 'python')}"


def _quoted(text: str) -> str:
    """Return a text as a Python string in double quotes."""
    return json.dumps(text, ensure_ascii=False)  # JSON's escape of a character above U+FFFF is two in Python
