"""go.mod files must name versions, and so must say what the version file says."""

from __future__ import annotations

import re

import pytest

from lab.programs import HERE
from lab.versions import fill, names

PINNED = [
    ("kubernetes", "k8s.io/kubernetes", "v{kubernetes}"),
    ("kubernetes-older", "k8s.io/kubernetes", "v{kubernetes-older}"),
    ("kubernetes", "github.com/coredns/coredns", "{coredns}"),
    ("kubernetes", "go.etcd.io/etcd/server/v3", "{etcd}"),
    ("etcd", "go.etcd.io/etcd/etcdctl/v3", "{etcd}"),
    ("etcd", "go.etcd.io/etcd/etcdutl/v3", "{etcd}"),
    ("kubernetes", "helm.sh/helm/v4", "{helm}"),
    ("kubernetes", "k8s.io/kube-state-metrics/v2", "{kube-state-metrics}"),
    ("kubernetes", "github.com/prometheus-operator/prometheus-operator", "{prometheus-operator}"),
    ("kubernetes", "github.com/prometheus/alertmanager", "{alertmanager}"),
    ("kubernetes", "github.com/prometheus/node_exporter", "{node-exporter}"),
    ("alertmanager", "github.com/prometheus/alertmanager", "{alertmanager}"),
    ("prometheus-adapter", "sigs.k8s.io/prometheus-adapter", "{prometheus-adapter}"),
    ("containerd", "github.com/containernetworking/plugins", "{cni-plugins}"),
    ("argo-cd", "github.com/argoproj/argo-cd/v3", "{argo-cd}"),
    ("argo-rollouts", "github.com/argoproj/argo-rollouts", "{argo-rollouts}"),
    ("keda", "github.com/kedacore/keda/v2", "v{keda}"),
    ("kwok", "sigs.k8s.io/kwok", "{kwok}"),
    ("metrics-server", "sigs.k8s.io/metrics-server", "{metrics-server}"),
    ("thanos", "github.com/thanos-io/thanos", "{thanos}"),
    ("traefik", "github.com/traefik/traefik/v3", "{traefik}"),
    ("containerd", "github.com/containerd/containerd/v2", "v{containerd.io}"),
    ("flannel", "github.com/flannel-io/flannel", "{network/flannel}"),
    ("nvidia", "github.com/NVIDIA/k8s-device-plugin", "{k8s-device-plugin}"),
    ("nvidia", "github.com/NVIDIA/nvidia-container-toolkit", "v{nvidia-container-toolkit}"),
]


@pytest.mark.parametrize(("group", "module", "version"), PINNED)
def test_go_mod_requires_what_the_version_file_pins(group: str, module: str, version: str) -> None:
    go_mod = (HERE / group / "go.mod").read_text()

    found = re.search(rf"^(?:require )?\s*{re.escape(module)} (\S+)", go_mod, re.MULTILINE)

    assert found is not None
    assert found[1] == fill(version)


def test_prometheus_is_the_module_of_its_release() -> None:
    major, minor, patch = fill("{prometheus}").removeprefix("v").split(".")
    go_mod = (HERE / "kubernetes" / "go.mod").read_text()

    assert f"\tgithub.com/prometheus/prometheus v0.{int(major) * 100 + int(minor)}.{patch}\n" in go_mod


def test_a_name_that_is_not_pinned_is_an_error() -> None:
    with pytest.raises(KeyError, match="no-such-program"):
        fill({"a": ["{no-such-program}"]})


def test_recipes_get_the_upstream_part_of_a_pin() -> None:
    assert names()["kubernetes"] == "1.37.2"
    assert names()["chart/dcgm-exporter"] == "4.8.3"
