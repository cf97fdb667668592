#!/bin/bash
# aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data
set -e
{ echo path,count
  awk '$4 >= 500 {n[$3]++} END {for (path in n) print n[path], path}' /app/access.log \
      | LC_ALL=C sort -k1,1nr -k2,2 | awk '{print $2 "," $1}'
} > /app/failing.csv
