"""The layout of sentence-transformers: modules.json, and a folder for each module after the encoder. Torch-free.

The modules compute one vector of a text from the encoder's hidden states: they belong to encoders without a task head.
"""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from biosqueeze.files import read_json, write_json
from biosqueeze.model_facts import head_of, shape_of
from biosqueeze.progress import warn

MODULES = "modules.json"
_FILES = (MODULES, "config_sentence_transformers.json", "sentence_bert_config.json")
_FOLDER = re.compile(r"\d+_\w+")
_WIDTHS = ("word_embedding_dimension", "embedding_dimension")  # in the pooling's config, by version
_HEADS = {"base", "mlm"}


def is_module_folder(path: Path) -> bool:
    """Return whether a path is the folder of a module, such as 1_Pooling, beside modules.json."""
    return bool(_FOLDER.fullmatch(path.name)) and (path.parent / MODULES).is_file() and path.is_dir()


def copy_sentence_layout(source: Path, target: Path) -> None:
    """Copy the layout of one checkpoint to a model that was made from it, with the width of the new model.

    Nothing is copied where the source has no such layout, or the new model has a task head. A module with weights, such
    as a dense layer, does not fit an encoder of another width: then a warning says that the layout is left out.

    Args:
        source: directory of the original.
        target: directory of the new model, with its config.json.
    """
    config = read_json(target / "config.json")
    if not (source / MODULES).is_file() or head_of(config) not in _HEADS:
        return
    width = shape_of(config).hidden
    folders = [path for path in sorted(source.iterdir()) if is_module_folder(path)]
    if width != shape_of(read_json(source / "config.json")).hidden:
        weighted = next((folder for folder in folders if _has_weights(folder)), None)
        if weighted is not None:
            warn(
                f"{weighted} has weights for another hidden size, so the sentence-transformers layout is left out; "
                "train the module again"
            )
            return
    for folder in folders:
        shutil.copytree(folder, target / folder.name)
        _set_width(target / folder.name / "config.json", width)
    for name in _FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def _has_weights(folder: Path) -> bool:
    return any(path.suffix in (".safetensors", ".bin") for path in folder.iterdir())


def _set_width(file: Path, width: int | None) -> None:
    if not file.is_file():
        return
    config: Mapping[str, Any] = read_json(file)
    changed = {key: width for key in _WIDTHS if key in config and config[key] != width}
    if changed:
        write_json(file, {**config, **changed})
