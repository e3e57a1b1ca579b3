"""Read checkpoints with stock transformers of any version: `PYTHON tests/stock_reader.py DIRECTORY ...`.

Prints one JSON object: the version, and of each directory the ids of a padded batch and the main output. It imports
nothing of this project, so that an interpreter that has only transformers runs it.
"""

import json
import sys
from pathlib import Path
from typing import Any

TEXTS = (
    "BRCA1 mutations raise the risk of ovarian carcinoma in patients.",
    "Aspirin-induced asthma, naïve T cells (CD4+) & 5 µg/ml of IL-2!",
    "cancer",
)
_AUTO = {
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForQuestionAnswering": "AutoModelForQuestionAnswering",
    "ForPreTraining": "AutoModelForPreTraining",
}
_PIPELINES = {"ForTokenClassification": "token-classification", "ForSequenceClassification": "text-classification"}


def read(directory: str) -> dict[str, Any]:
    """Return ids, names of the inputs and outputs of a checkpoint for TEXTS, padded."""
    import torch
    import transformers

    architecture = json.loads((Path(directory) / "config.json").read_text())["architectures"][0]
    suffix = next((suffix for suffix in _AUTO if architecture.endswith(suffix)), "")
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = getattr(transformers, _AUTO.get(suffix, "AutoModel")).from_pretrained(directory).eval()
    batch = tokenizer(list(TEXTS), padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        output = model(**batch)
    found: dict[str, Any] = {
        "class": type(model).__name__,
        "inputs": sorted(batch),
        "ids": batch["input_ids"].tolist(),
        "mask": batch["attention_mask"].tolist(),
        "max_length": tokenizer.model_max_length,
        # CamemBERT's two unused ones are special in some versions.
        "special_tokens": sorted(t for t in map(str, tokenizer.all_special_tokens) if not t.endswith("NOTUSED")),
        "outputs": output[next(iter(output))].tolist(),
        "labels": {str(key): label for key, label in model.config.id2label.items()},
    }
    if suffix in _PIPELINES:
        pipeline = transformers.pipeline(_PIPELINES[suffix], model=directory, device=-1)
        found["pipeline"] = [
            {key: float(value) if key == "score" else value for key, value in row.items()}
            for text in TEXTS
            for row in pipeline([text])[0:1]
            for row in (row if isinstance(row, list) else [row])
        ]
    return found


if __name__ == "__main__":
    import transformers

    found = {directory: read(directory) for directory in sys.argv[1:]}
    sys.stdout.write(json.dumps({"version": transformers.__version__, "checkpoints": found}) + "\n")
