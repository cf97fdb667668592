#!/bin/bash
# aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data
set -e
tr -cs '[:alpha:]' '\n' < /app/poem.txt | tr '[:upper:]' '[:lower:]' | grep . | sort | uniq -c \
    | sort -rn | head -n 3 | awk '{print $2, $1}' > /app/top.txt
