#!/bin/bash
# aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data
set -e
cat > /app/median.py <<'END'
import sys

numbers = sorted(float(line) for line in sys.stdin if line.strip())
if not numbers:
    print("none")
else:
    half = len(numbers) // 2
    middle = numbers[half] if len(numbers) % 2 else (numbers[half - 1] + numbers[half]) / 2
    print(f"{middle:g}")
END
