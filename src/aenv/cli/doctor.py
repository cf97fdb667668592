"""`aenv doctor`: what this host supports, what is missing, and what to do."""

from __future__ import annotations

from dataclasses import asdict

import click

from . import output


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> int:
    """Check what isolates and limits instances on this host. Exits with 1 when instances cannot be isolated."""
    from ..sandbox import probe

    checks, missing = probe.checks(), probe.missing_isolation()
    if as_json:
        output.json({"isolation": missing is None, "missing": missing, "checks": [asdict(one) for one in checks]})
        return 1 if missing else 0
    marks = {True: "ok", False: "MISSING", None: "-"}
    rows = [(check.name, marks[check.ok], check.found, check.fix) for check in checks]
    output.table(("Check", "State", "Found", "What to do"), rows)
    if missing:
        output.error(f"instances cannot be isolated on this host: {missing}")
        return 1
    output.talk("instances can be isolated on this host")
    return 0
