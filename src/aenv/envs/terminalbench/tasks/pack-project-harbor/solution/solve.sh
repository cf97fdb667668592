#!/bin/bash
# aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data
set -e
tar -C /app --exclude='*.tmp' --exclude=project/cache -czf /app/project.tar.gz project
