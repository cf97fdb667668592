"""Delete what gateways of one installation made: cleanup.py NAMESPACE OWNER KIND…"""

import sys

from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_namespaced_resource

KINDS = {
    "deployments": ("apps", "v1", "Deployment"),
    "services": ("", "v1", "Service"),
    "pods": ("", "v1", "Pod"),
    "networkpolicies": ("networking.k8s.io", "v1", "NetworkPolicy"),
    "leases": ("coordination.k8s.io", "v1", "Lease"),
}

namespace, owner, *kinds = sys.argv[1:]
client = Client(namespace=namespace)
# Deployments first: they would make their Pods again.
for plural in [kind for kind in KINDS if kind in kinds]:
    resource = create_namespaced_resource(*KINDS[plural], plural)
    for found in client.list(resource, labels={"aenv.owner": owner}):
        try:
            client.delete(resource, found.metadata.name)
            print(f"deleted {plural} {found.metadata.name}", flush=True)
        except ApiError as error:
            if error.status.code != 404:
                raise
