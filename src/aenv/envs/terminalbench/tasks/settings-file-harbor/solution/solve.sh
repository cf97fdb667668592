#!/bin/bash
# aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data
set -e
awk '
    /^[[:space:]]*([;#]|$)/ { next }
    /^\[/ { gsub(/[][ ]/, ""); section = $0; next }
    {
        at = index($0, "="); key = substr($0, 1, at - 1); value = substr($0, at + 1)
        gsub(/^[ \t]+|[ \t]+$/, "", key); gsub(/^[ \t]+|[ \t]+$/, "", value)
        name = toupper(section "_" key); gsub(/-/, "_", name)
        print name "=" value
    }' /app/settings.ini > /app/settings.env
