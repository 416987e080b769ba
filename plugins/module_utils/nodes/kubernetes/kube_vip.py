# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The static pod that gives an address to the control plane that leads."""

from __future__ import annotations

from typing import Any

from .options import KubernetesOptions

ADMIN_CONF = "/etc/kubernetes/admin.conf"
# Until the cluster has its roles, only this kubeconfig may take the lease (kube-vip/kube-vip#684).
SUPER_ADMIN_CONF = "/etc/kubernetes/super-admin.conf"


def static_pod(options: KubernetesOptions, kubeconfig: str) -> dict[str, Any]:
    container = {
        "name": "kube-vip",
        "image": options.versions["images"]["kube-vip"],
        "imagePullPolicy": "IfNotPresent",
        "args": ["manager"],
        "env": _environment(options),
        "securityContext": {"capabilities": {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]}},
        "volumeMounts": [{"name": "kubeconfig", "mountPath": ADMIN_CONF}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "kube-vip", "namespace": "kube-system"},
        "spec": {
            "hostNetwork": True,
            "hostAliases": [{"ip": "127.0.0.1", "hostnames": ["kubernetes"]}],
            "priorityClassName": "system-node-critical",
            "containers": [container],
            "volumes": [{"name": "kubeconfig", "hostPath": {"path": kubeconfig, "type": "FileOrCreate"}}],
        },
    }


def _environment(options: KubernetesOptions) -> list[dict[str, Any]]:
    interface = {"vip_interface": options.kube_vip_interface} if options.kube_vip_interface else {}
    values = {
        "vip_arp": "true",
        "port": "6443",
        "vip_subnet": "32",
        "dns_mode": "first",
        "cp_enable": "true",
        "cp_namespace": "kube-system",
        "svc_enable": "false",
        "vip_leaderelection": "true",
        "vip_leasename": "plndr-cp-lock",
        "vip_leaseduration": "15",
        "vip_renewdeadline": "10",
        "vip_retryperiod": "2",
        "address": options.kube_vip_address,
        **interface,
    }
    node = {"name": "vip_nodename", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    return [node, *({"name": name, "value": value} for name, value in values.items())]
