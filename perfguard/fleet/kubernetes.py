"""A Kubernetes Job in which a worker measures all waiting shards of a class. It was validated, but never run."""

from __future__ import annotations

from typing import Any

_LABELS = {"app.kubernetes.io/name": "perfguard", "app.kubernetes.io/component": "fleet-worker"}
_UNTESTED = "this manifest satisfies the schema of Kubernetes, but was not run in a cluster by perfguard's authors"


def job(machine_class: str, *, image: str, cpus: int, memory: str, secret: str) -> dict[str, Any]:
    """A Job for one node of a class, as JSON for `kubectl apply -f -`.

    Whole CPUs, with limits equal to requests, make its quality of service Guaranteed: a kubelet with the static CPU
    manager gives them to nobody else. The node is labelled `perfguard/class`; the secret has the key `database`.
    """
    resources = {"cpu": str(cpus), "memory": memory}
    variable = {"name": "PERFGUARD_DATABASE", "valueFrom": {"secretKeyRef": {"name": secret, "key": "database"}}}
    container = {
        "name": "worker",
        "image": image,
        "command": ["perfguard", "fleet", "worker", "--once", "--class", machine_class],
        "env": [variable],
        "resources": {"requests": resources, "limits": resources},
    }
    # Pods that are on one node would measure each other.
    alone = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": _LABELS}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {"perfguard/class": machine_class},
        "affinity": alone,
        "automountServiceAccountToken": False,
        "containers": [container],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "generateName": "perfguard-worker-",
            "labels": _LABELS,
            "annotations": {"perfguard/untested": _UNTESTED},
        },
        # What a worker could not finish is handed out again by the fleet itself.
        "spec": {"backoffLimit": 0, "template": {"metadata": {"labels": _LABELS}, "spec": pod}},
    }
