#!/usr/bin/env bash
# Speed and peak memory of prepare: bash benchmarks/prepare.sh VOCABULARY FILE [FORMAT]
# Prints the report of bert-jax prepare, and the peak of its largest process by GNU time. A FILE.xz is unpacked before.
set -euo pipefail
vocabulary=$1 file=$2 format=${3:-wiki}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
case "$file" in
  *.xz)
    xz -dc "$file" >"$scratch/text"
    file=$scratch/text
    ;;
esac
/usr/bin/time -f 'peak of the largest process: %M kB, %e s in all' \
  bert-jax prepare --config bert_base --config.store="$scratch/store" \
  --config.corpus.source="$file" --config.corpus.format="$format" \
  --config.tokenizer.path="$vocabulary"
