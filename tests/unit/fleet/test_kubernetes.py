"""The Job satisfies Kubernetes' own schema, and asks for CPUs of its own."""

from __future__ import annotations

import kubernetes_validate
import pytest

from perfguard.fleet.kubernetes import job

MADE = job("icelake", image="registry.example.org/perfguard:1", cpus=16, memory="32Gi", secret="perfguard")


@pytest.mark.parametrize("version", ["1.28", "1.34"])
def test_it_satisfies_the_schema(version):
    assert kubernetes_validate.validate(MADE, version, strict=True) == version


def test_a_broken_one_would_not():
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(
            {**MADE, "spec": {"template": {"spec": {"containers": "none"}}}}, "1.34", strict=True
        )


def test_its_cpus_are_guaranteed_and_its_node_is_of_the_class():
    pod = MADE["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"] == {"cpu": "16", "memory": "32Gi"}
    assert pod["nodeSelector"] == {"perfguard/class": "icelake"}
    assert MADE["spec"]["backoffLimit"] == 0
    assert "not run in a cluster" in MADE["metadata"]["annotations"]["perfguard/untested"]
