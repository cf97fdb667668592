#!/bin/bash
# aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data
set -e
cat > /tmp/merge.py <<'END'
import json

people = {}
for name in ("a", "b"):
    for person in json.load(open(f"/app/{name}.json")):
        people.setdefault(person["id"], {}).update(person)
json.dump([people[id] for id in sorted(people)], open("/app/merged.json", "w"))
END
python3 /tmp/merge.py
