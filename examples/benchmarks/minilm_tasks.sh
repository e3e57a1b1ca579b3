#!/usr/bin/env bash
# Fine-tune all-MiniLM-L6-v2 on the BLURB tasks under DATA: the table in results/fine_tuning.md.
#   bash minilm_tasks.sh DATA [SEEDS]      `biosqueeze tasks blurb DATA` lists which data sets are found
set -euo pipefail
data=$1 seeds=${2:-3}

# A 22.7M model needs higher learning rates than the papers' base models. BC5CDR-chem is trained on train and dev together,
# less a held-out twentieth for selection, as in BioBERT's files; BC2GM on 3,000 sentences.
biosqueeze benchmark demo:minilm --suite blurb --data "$data" --seeds "$seeds" --jobs 2 --out blurb \
    --only bc5-chem --only bc5-disease --only ncbi-disease --only bc2gm --only biosses --only hoc --only pubmedqa \
    --set lr=2e-4 --set warmup=0.1 \
    --set ncbi-disease.epochs=10 \
    --set bc5-chem.epochs=5 --set bc5-chem.label-all-pieces=true \
    --set bc5-chem.with-dev=true --set bc5-chem.dev-share=0.05 \
    --set bc5-disease.epochs=10 --set bc5-disease.label-all-pieces=true \
    --set bc2gm.epochs=4 --set bc2gm.label-all-pieces=true --set bc2gm.train-size=3000 \
    --set biosses.representation=cosine --set biosses.lr=1e-4 --set biosses.epochs=8 --set biosses.batch-size=8 \
    --set hoc.epochs=6 --set hoc.batch-size=8 --set hoc.max-length=256 \
    --set pubmedqa.lr=1e-4 --set pubmedqa.epochs=3 --set pubmedqa.batch-size=8

# SciBERT's release of ChemProt (13 classes, no negative pairs), also used by the compact-transformers paper.
biosqueeze benchmark demo:minilm --suite compact --data "$data" --seeds "$seeds" --jobs 2 --out compact \
    --only chemprot --set lr=2e-4 --set epochs=3 --set max-length=128
