"""Where the cluster is, and who we are there: a kubeconfig, or the service account of the Pod that we run in.

Everything that is wrong with it is InvalidRequest, one line. Not here: requests (`cluster_client.py`).
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import yaml
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import NameValue, UserExec
from lightkube.core.exceptions import ConfigError

from ...base.errors import InvalidRequest

_PLUGIN_API = "client.authentication.k8s.io/"
_KNOWN_TO_CLIENT = f"{_PLUGIN_API}v1beta1"


@dataclass(frozen=True)
class ClusterAccess:
    """Where the cluster is, and which part of it is ours."""

    kubeconfig: Path | None = None
    """None: the service account of the Pod that we run in, else KUBECONFIG or ~/.kube/config."""
    context: str | None = None
    namespace: str | None = None
    """None: that of the service account or of the context."""


def cluster_config(access: ClusterAccess) -> SingleConfig:
    """What the client needs. InvalidRequest when there is no configuration, or one that cannot be used."""
    file = access.kubeconfig
    try:
        configs = KubeConfig.from_file(file) if file else KubeConfig.from_env()
        config = configs.get(context_name=access.context)
    except (ConfigError, OSError, KeyError, ValueError, TypeError) as error:
        raise InvalidRequest(f"no cluster is configured: {one_line(error)}; name one with --kubeconfig") from None
    except (yaml.YAMLError, AttributeError) as error:  # lightkube expects a mapping
        why = one_line(error) if isinstance(error, yaml.YAMLError) else "it is not a mapping"
        raise InvalidRequest(f"{str(file or 'the configuration')!r} is not a kubeconfig: {why}") from None
    if config is None:
        raise InvalidRequest(f"the kubeconfig has no context {access.context!r}")
    _check_files(config)
    if config.user and config.user.exec:
        _prepare(config.user.exec)
    return config


def _check_files(config: SingleConfig) -> None:
    user = config.user
    named = [config.cluster.certificate_auth, *((user.client_cert, user.client_key) if user else ())]
    for name in filter(None, named):
        if not Path(config.abs_file(name)).is_file():
            raise InvalidRequest(f"the kubeconfig names the file {str(name)!r}, which is not there")


def _prepare(plugin: UserExec) -> None:
    """The client knows an older version of the protocol of plugins, which differs in the name alone."""
    if not shutil.which(plugin.command):
        hint = f": {one_line(plugin.installHint)}" if plugin.installHint else ""
        raise InvalidRequest(f"the kubeconfig needs the program {plugin.command!r}, which is not installed{hint}")
    asked = {"apiVersion": plugin.apiVersion, "kind": "ExecCredential", "spec": {"interactive": False}}
    plugin.env = [*(plugin.env or ()), NameValue("KUBERNETES_EXEC_INFO", json.dumps(asked))]
    if plugin.apiVersion == f"{_PLUGIN_API}v1":
        plugin.apiVersion = _KNOWN_TO_CLIENT


def one_line(error: object) -> str:
    """An error as a part of one of our lines."""
    return " ".join(str(error).split())[:500]
