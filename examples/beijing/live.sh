#!/usr/bin/env bash
# Twelve agents on loopback, one per station, in a fresh folder; Ctrl-C ends them.
# Further arguments go to `dokl up`: live.sh --once ends when all files are at their end.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
dokl network new "$folder/beijing.toml" \
  --graph "$here/links.csv" --sample "$here/sample.csv" --target log_pm25 \
  --components 500 --sigma 5 --schedule normalised --mu 0.5 --intercept 0.3 \
  --insecure-loopback --quiet > /dev/null
echo "dokl watch $folder/beijing.toml"
exec dokl up "$folder/beijing.toml" --data "$here/stations" --rate 100 --batch 5 "$@"
