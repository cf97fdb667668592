"""Templates of Pods: what operators decide about the Pods of instances, before an instance is filled in.

`singleContainer` and `dualContainer` are ours. An operator's own are the entries of a ConfigMap, each the YAML of
a Pod under the name that environments ask for with `podTemplate`. Environments give names only, never paths.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import yaml

from ...base.errors import InvalidRequest
from ..containers.container_plan import USER
from ..containers.sidecar_plan import CAPABILITIES

PodTemplate = dict[str, Any]

SINGLE = "singleContainer"
DUAL = "dualContainer"
MAIN = "main"
SECOND = "second"
_ALIASES = {"dualcontainer": DUAL, "singlecontainer": SINGLE, "default": SINGLE}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,62}\Z")
_SUFFIXES = (".yaml", ".yml")
_CONTAINER: dict[str, Any] = {
    "securityContext": {},
    "resources": {"limits": {}, "requests": {}},
    "env": [],
    "ports": [],
    "volumeMounts": [],
}
_SHAPE: dict[str, Any] = {
    "metadata": {"labels": {}, "annotations": {}},
    "spec": {"volumes": [], "initContainers": [], "containers": [_CONTAINER]},
}
"""What is filled in: mappings, and lists of mappings. The API server checks the rest when a Pod is created."""

_MAIN_SECURITY = {
    "allowPrivilegeEscalation": False,
    "privileged": False,
    "capabilities": {"drop": ["ALL"]},
}
_POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
SECOND_SECURITY = {
    "runAsUser": 0,
    "runAsNonRoot": False,
    "allowPrivilegeEscalation": False,
    "privileged": False,
    "capabilities": {"drop": ["ALL"], "add": list(CAPABILITIES)},
}
"""Of the second container: root in its own files, as package managers need."""
_SINGLE: PodTemplate = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {},
    "spec": {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 3,
        "securityContext": _POD_SECURITY,
        "containers": [
            {
                "name": MAIN,
                "securityContext": _MAIN_SECURITY,
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
            }
        ],
    },
}
_DUAL: PodTemplate = {
    **_SINGLE,
    "spec": {
        **_SINGLE["spec"],
        "containers": [_SINGLE["spec"]["containers"][0], {"name": SECOND, "securityContext": SECOND_SECURITY}],
    },
}


class PodTemplates:
    """The templates by name: ours, and those of the operator, which may replace ours."""

    def __init__(self, texts: Mapping[str, str] | None = None, source: str = "") -> None:
        """`texts` by name, as a ConfigMap has them; `source` names it in errors. InvalidRequest for a bad one."""
        own = {_stem(name): parse(text, f"{source}, entry {name!r}") for name, text in (texts or {}).items()}
        self._templates = {SINGLE: _SINGLE, DUAL: _DUAL, **own}

    def get(self, name: str, *, is_dual: bool = False) -> PodTemplate:
        """A copy of the template. InvalidRequest with the names that there are."""
        name = template_name(name) or (DUAL if is_dual else SINGLE)
        if name == SINGLE and is_dual:
            name = DUAL
        if not _NAME.match(name):
            raise InvalidRequest(f"field 'podTemplate': {name[:80]!r} is not the name of a template")
        if name not in self._templates:
            known = ", ".join(sorted(self._templates))
            raise InvalidRequest(f"field 'podTemplate': no template {name!r}; the cluster has {known}")
        return copy.deepcopy(self._templates[name])


def parse(text: str, source: str) -> PodTemplate:
    """The template of a text in YAML. InvalidRequest, in one line, when it is not a Pod that we can fill in."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidRequest(f"{source}: not YAML: {' '.join(str(error).split())[:200]}") from None
    found = _without_nulls(found)
    if not isinstance(found, dict) or found.get("kind") != "Pod" or found.get("apiVersion") != "v1":
        kind = found.get("kind") if isinstance(found, dict) else type(found).__name__
        raise InvalidRequest(f"{source}: a template must be a Pod of apiVersion v1, not {kind!r}")
    spec = found.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(containers, list) or not all(isinstance(each, dict) for each in containers):
        raise InvalidRequest(f"{source}: the template has no spec.containers")
    if MAIN not in [container.get("name") for container in containers]:
        raise InvalidRequest(f"{source}: the template has no container {MAIN!r}, in which the runtime starts")
    _check_shape(found, _SHAPE, source, "")
    found["spec"].setdefault("restartPolicy", "Never")
    if found["spec"]["restartPolicy"] != "Never":
        raise InvalidRequest(f"{source}: the restartPolicy of a template must be Never: an instance starts once")
    return found


def _without_nulls(found: Any) -> Any:
    """As Kubernetes reads it: a field without a value is not there."""
    if isinstance(found, dict):
        return {name: _without_nulls(value) for name, value in found.items() if value is not None}
    return [_without_nulls(each) for each in found] if isinstance(found, list) else found


def _check_shape(found: Any, shape: Any, source: str, place: str) -> None:
    """InvalidRequest when it is not of that shape, as far as it is there."""
    if not isinstance(found, type(shape)):
        kind = "list" if isinstance(shape, list) else "mapping"
        raise InvalidRequest(f"{source}: field {place!r} of the template must be a {kind}, not {found!r:.60}")
    for each in found if isinstance(shape, list) else ():
        _check_shape(each, shape[0] if shape else {}, source, place)
    for name, inner in shape.items() if isinstance(shape, dict) else ():
        if name in found:
            _check_shape(found[name], inner, source, f"{place}.{name}".lstrip("."))


def template_name(name: str) -> str:
    """Ours as we write it, whatever its spelling: `DualContainer` is the published one."""
    return _ALIASES.get(name.lower(), name)


def _stem(name: str) -> str:
    stem = next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)
    return template_name(stem)
