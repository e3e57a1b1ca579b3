"""Read the tables of BioCreative's ChemProt (Krallinger et al. 2017) and DrugProt (Miranda et al. 2021).

Three files without a header belong together: abstracts (id, title, abstract), entities (id, T1, type, start, end, text)
and relations (id, type, Arg1:T1, Arg2:T2). ChemProt's relations have two more columns before the arguments: whether
their type is evaluated (Y or N), and a finer type.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from biosqueeze.data.annotations.annotated import (
    AnnotatedRelation,
    Annotation,
    Document,
    DocumentCounts,
    align_annotation,
    linked_relations,
)
from biosqueeze.data.lines import numbered_lines
from biosqueeze.data.records.splits import table_beside
from biosqueeze.errors import SqueezeError

_ENTITY = re.compile(r"([^\t]+)\t(T\d+)\t([^\t]+)\t(\d{1,9})\t(\d{1,9})\t(.+)")
_RELATION = re.compile(r"([^\t]+)\t([^\t]+)\t(?:([YN])[^\t]*\t[^\t]*\t)?Arg1:(T\d+)\tArg2:(T\d+)\s*")
_GENES = {"GENE-Y": "GENE", "GENE-N": "GENE"}  # whether it is in a database, which neither task looks at

_Row = tuple[str, re.Match[str]]  # file and line, and the cells


def read_entity_tables(abstracts: Path) -> Iterator[Document]:
    """Stream the documents of a table of abstracts, and log their number at the end.

    The text of a document is its title, a line end and its abstract. GENE-Y and GENE-N are read as GENE. Relations of
    types that are not evaluated are counted and skipped. A split without a table of relations has none.

    Args:
        abstracts: beside which lie the entities, and mostly the relations.

    Raises:
        SqueezeError: a row is malformed, or an entity does not agree with its text.
    """
    counts = DocumentCounts(str(abstracts))
    entities = _rows(table_beside(abstracts, "entities"), _ENTITY, "ID, T1, TYPE, START, END and TEXT")
    relations = _rows(table_beside(abstracts, "relations"), _RELATION, "ID, TYPE, Arg1:T1 and Arg2:T2")
    for number, line in numbered_lines(abstracts):
        if line.strip():
            bare = _document(line, f"{abstracts}:{number}")
            annotations = _annotations(bare, entities.pop(bare.id, []), counts.counts)
            linked = _linked(annotations, relations.pop(bare.id, []), counts.counts)
            document = replace(bare, annotations=tuple(annotations.values()), relations=linked)
            if counts.add(document):
                yield document
    for rows in (*entities.values(), *relations.values()):
        where, match = rows[0]
        raise SqueezeError(f"{where}: there is no abstract {match[1]} in {abstracts}; they belong together: add it")
    counts.report()


def _rows(path: Path | None, pattern: re.Pattern[str], expected: str) -> dict[str, list[_Row]]:
    """Return the rows of a table by the id of their abstract."""
    found = defaultdict(list)
    for number, line in numbered_lines(path) if path else ():
        match = pattern.fullmatch(line)
        if match:
            found[match[1]].append((f"{path}:{number}", match))
        elif line.strip():
            raise SqueezeError(f"{path}:{number}: {line[:60]!r} has not {expected} between tabs; correct the row")
    return found


def _document(line: str, where: str) -> Document:
    name, *texts = line.split("\t")
    if len(texts) != 2:
        raise SqueezeError(f"{where}: {len(texts) + 1} columns, not ID, TITLE and ABSTRACT; correct the row")
    return Document(name, "\n".join(texts), (), where)


def _annotations(document: Document, rows: list[_Row], counts: Counter[str]) -> dict[str, Annotation]:
    """Return the entities of a document by their names."""
    annotations: dict[str, Annotation] = {}
    for where, match in rows:
        _, name, kind, start, end, text = match.groups()
        if name in annotations:
            raise SqueezeError(f"{where}: {document.id} has two entities {name}; give one of them another name")
        if kind in _GENES:
            counts["GENE-Y and GENE-N read as GENE"] += 1
        annotation = Annotation(int(start), int(end), _GENES.get(kind, kind), text, name)
        annotations[name] = align_annotation(document, annotation, where)
    return annotations


def _linked(
    annotations: Mapping[str, Annotation], rows: list[_Row], counts: Counter[str]
) -> tuple[AnnotatedRelation, ...]:
    """Return the relations of a document."""
    found = []
    for where, match in rows:
        name, kind, evaluated, *arguments = match.groups()
        if unknown := next((each for each in arguments if each not in annotations), None):
            raise SqueezeError(f"{where}: {name} has no entity {unknown}; correct the row, or add the entity")
        if evaluated == "N":
            counts["relations of types that are not evaluated skipped"] += 1
        else:
            found.append((kind, arguments))
    return linked_relations(found, annotations, counts)
