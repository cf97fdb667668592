"""Makes records ready, for `aenv data prepare swebench`: an order on stdin, lines of JSON on stdout."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "src"))

from swebench_bases import NoBase
from swebench_prepare import NotPrepared, Preparation
from swebench_records import BadRecord
from swebench_sources import records


def main() -> None:
    order = json.load(sys.stdin)
    data, base = Path(order["data"]), order["base"] or "sdist"
    preparation = Preparation(data, Path(order["target"]), base, order["uv"], os.environ)
    for id in order["instances"] or [record.id for record in records(data)]:
        say = partial(tell, id, "step")
        try:
            found = [*records(data, id)]
            if not found:
                raise NotPrepared(f"{str(data)!r} has no such instance")
            tell(id, "ready", preparation.prepare(found[0], say))
        except (NotPrepared, NoBase, BadRecord) as error:
            tell(id, "failed", str(error))


def tell(id: str, kind: str, said: str) -> None:
    print(json.dumps({"id": id, kind: said}), flush=True)


if __name__ == "__main__":
    main()
