"""Put the files that documentation pages name into the pages: `<!-- file: PATH -->` before a code block."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SNIPPET = re.compile(r"(<!-- file: (\S+) -->\n```python\n).*?```", re.DOTALL)

for page in [*ROOT.glob("docs/**/*.md"), ROOT / "README.md"]:
    text = page.read_text()
    filled = SNIPPET.sub(lambda match: f"{match[1]}{(ROOT / match[2]).read_text()}```", text)
    if filled != text:
        page.write_text(filled)
