#!/usr/bin/env bash
# NCBI-disease, from a general encoder to an int8 student, in plain pipes.
#
#   ./run.sh NCBI_DISEASE_DIR PUBMED_TEXT [OUT_DIR]
#
# NCBI_DISEASE_DIR  holds train.tsv, devel.tsv and test.tsv (token<TAB>tag; e.g. from the MTL-Bioinformatics-2016 corpora)
# PUBMED_TEXT       unlabelled sentences: a .txt, .txt.gz or .jsonl file, or a directory of them
# OUT_DIR           where the checkpoints go (default: ncbi-disease-run)
set -euo pipefail
if [ $# -lt 2 ]; then
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
data=$1 text=$2 out=${3:-ncbi-disease-run}
mkdir -p "$out"

echo "== teacher: fine-tune all-MiniLM-L6-v2 (6 x 384)" >&2
biosqueeze finetune demo:minilm --data "$data" --epochs 10 --lr 2e-4 --out "$out/teacher" |
    biosqueeze evaluate - --data "$data" --min f1=0.82

echo "== student: every other layer, distilled on labelled and unlabelled sentences" >&2
biosqueeze shrink "$out/teacher" --layers 1,3,5 --out "$out/shrunk" |
    biosqueeze distill - --teacher "$out/teacher" --data "$data" --corpus "$text" --unlabelled 2 \
        --epochs 5 --lr 4e-4 --out "$out/student" |
    biosqueeze evaluate - --data "$data"

echo "== int8 with dynamic and with static activation ranges" >&2
biosqueeze export "$out/student" --out "$out/onnx" |
    biosqueeze quantize - --out "$out/int8" |
    biosqueeze evaluate - --data "$data"

biosqueeze quantize "$out/onnx" --method inc-static --calibration "$text" --out "$out/int8-static" |
    biosqueeze evaluate - --data "$data"

echo "== side by side" >&2
biosqueeze bench "$out/teacher" "$out/student" "$out/int8" "$out/int8-static" --batch-size 1,8 --length 128
