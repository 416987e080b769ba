#!/bin/bash
# From a bare server to a cluster, after the guides of NVIDIA, Docker and Kubernetes. MIRROR and IMAGES stand in for the hosts that these name.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

repository() {
    echo "deb [signed-by=/etc/apt/keyrings/mirror.asc] $MIRROR/$2" >"/etc/apt/sources.list.d/$1.list"
}
repository docker "download.docker.com/linux/debian bookworm stable"
repository kubernetes "pkgs.k8s.io/core:/stable:/v1.37/deb /"
repository cuda "developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64 /"
repository toolkit "nvidia.github.io/libnvidia-container/stable/deb/amd64 /"
apt-get update -q
apt-get install -qy nvidia-driver-cuda nvidia-kernel-open-dkms libnvidia-cfg1 nvidia-persistenced containerd.io nvidia-container-toolkit \
    kubelet kubeadm kubectl iptables
systemctl enable --now nvidia-persistenced
nvidia-smi -L

cp /root/containerd.toml /etc/containerd/config.toml
for registry in docker.io nvcr.io quay.io registry.k8s.io; do
    mkdir -p "/etc/containerd/certs.d/$registry"
    printf 'server = "%s/v2/%s"\ncapabilities = ["pull", "resolve"]\noverride_path = true\n' "$IMAGES" "$registry" >"/etc/containerd/certs.d/$registry/hosts.toml"
done
# As NVIDIA's guide has it for the device plugin: each container starts by NVIDIA's runtime, so there is no RuntimeClass.
nvidia-ctk runtime configure --runtime=containerd --set-as-default
systemctl restart containerd

sysctl -q net.ipv4.ip_forward=1
mkdir -p /etc/cni/net.d
cat >/etc/cni/net.d/10-bridge.conflist <<'NETWORK'
{
  "cniVersion": "1.0.0", "name": "bridge",
  "plugins": [
    {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
     "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
NETWORK

kubeadm init --config /root/kubeadm.yaml --ignore-preflight-errors SystemVerification
kubeadm kubeconfig user --config /root/kubeadm.yaml --client-name guest >/root/guest.conf
