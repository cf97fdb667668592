"""Labels of containers: the published ones, the standard ones, ours, and those that the creator gave."""

from __future__ import annotations

import re

from ..base import InstanceSpec

INSTANCE = "aenv.instance"
"""Carries the id of the instance."""
ENVIRONMENT = "aenv.environment"
PART = "aenv.part"
"""`main` or `sidecar`."""
USER_PREFIX = "aenv.label/"
"""Before the names of labels that the creator gave."""
_VALUE_BYTES = 63  # the most that Kubernetes takes


def labels(spec: InstanceSpec, part: str = "main") -> dict[str, str]:
    """All labels, with values as they are; `safe_value` makes what Kubernetes takes of one."""
    name, _, version = spec.environment.partition("@")
    ttl = {} if spec.ttl is None else {"business/aenv-ttl": f"{spec.ttl:g}s"}
    return {
        **{f"{USER_PREFIX}{label}": value for label, value in spec.labels.items()},
        "business/aenv-name": name,
        "business/aenv-version": version,
        "business/aenv-owner": spec.owner,
        **ttl,
        "app.kubernetes.io/name": name,
        "app.kubernetes.io/version": version,
        "app.kubernetes.io/instance": spec.id,
        "app.kubernetes.io/component": part,
        "app.kubernetes.io/part-of": "aenv",
        "app.kubernetes.io/managed-by": "aenv",
        INSTANCE: spec.id,
        ENVIRONMENT: spec.environment,
        PART: part,
    }


def safe_value(text: str) -> str:
    """A legal value of a label of Kubernetes, as near to the text as it can be."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)[:_VALUE_BYTES].strip("._-")
