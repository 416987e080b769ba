#!/usr/bin/python
# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# The action plugin of this name does the work, on the controller.
from __future__ import annotations

DOCUMENTATION = r"""
module: node_plan
short_description: Decide what a role does to a server
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Takes the options of a role and what its tasks have read on a server. Returns what the role does there.
  - Runs on the controller and reads nothing itself. The same options and answers always give the same plan.
  - An answer that no task has asked for yet is left out, or is the result of a skipped task.
options:
  host:
    description: The server.
    type: dict
    required: true
    suboptions:
      name:
        description: Its name in the inventory.
        type: str
        required: true
      system:
        description: Distribution and version, C(Ubuntu 24.04) or C(Debian 12).
        type: str
        required: true
      release:
        description: Its codename, C(noble) or C(bookworm).
        type: str
        default: ""
      kernel:
        description: Release of the running kernel.
        type: str
        required: true
      architecture:
        description: Architecture as the kernel names it.
        type: str
        required: true
      is_local:
        description: Whether Ansible runs on it, so that no task can reboot it.
        type: bool
        default: false
      clusters:
        description: Files by which it is a node of a cluster, as M(kubegpu.autoscale.server_info) returns them.
        type: list
        elements: str
        default: []
  server:
    description: Check whether a server can become a node.
    type: dict
    suboptions:
      user:
        description: By whom the tasks run.
        type: str
        required: true
      uid:
        description: The number of that user.
        type: int
        required: true
      wanted_gib:
        description: Free disk space by folder that a node needs, C(kubegpu_free_gib).
        type: dict
        default: {}
      free_gib:
        description: What there is, as M(kubegpu.autoscale.server_info) returns it.
        type: dict
        default: {}
  servers:
    description: Check whether the servers of a play can become one cluster.
    type: dict
    suboptions:
      wanted:
        description: Servers that the play began with.
        type: list
        elements: str
        default: []
      remaining:
        description: Those that are left.
        type: list
        elements: str
        default: []
      needed:
        description: Those that may never be left out.
        type: list
        elements: str
        default: []
      fail_fast:
        description: Whether none may be left out, C(kubegpu_fail_fast).
        type: bool
        default: true
      hostnames:
        description: Host names by the servers' names in the inventory.
        type: dict
        default: {}
  apt:
    description: Plan a set of packages from one repository.
    type: dict
    suboptions:
      set:
        description: The set, as the role C(_common) documents it.
        type: dict
        required: true
      paths:
        description: Files of the set.
        type: dict
        required: true
        suboptions:
          key:
            description: The key of the repository.
            type: str
            required: true
          source:
            description: The repository.
            type: str
            required: true
          pin:
            description: The versions that the packages are pinned to.
            type: str
            required: true
          before:
            description: Names of packages that were installed before.
            type: str
            required: true
          config:
            description: Proxy of the repository, and what unattended-upgrades leaves alone.
            type: str
            required: true
      mirror:
        description: C(kubegpu_apt_mirror).
        type: str
        default: ""
      mirror_key:
        description: C(kubegpu_apt_mirror_key).
        type: str
        default: ""
      proxy:
        description: C(kubegpu_apt_proxy).
        type: str
        default: ""
      survey:
        description: What was read on the server. Results of tasks are passed as they were registered.
        type: dict
        default: {}
        suboptions:
          sources:
            description: Existing sources, as M(kubegpu.autoscale.server_info) returns them.
            type: list
            elements: dict
            default: []
          found:
            description: Result of M(ansible.builtin.find) for the files of the set and apt's lists, with checksums.
            type: dict
            default: {}
          packages:
            description: Result of C(dpkg-query), with C(name=version) and state of packages.
            type: dict
            default: {}
          pin:
            description: C(stat) of the file with the pin.
            type: dict
            default: {}
          before:
            description: Result of M(ansible.builtin.slurp) for the list of packages that were installed before.
            type: dict
            default: {}
          check_mode:
            description: Whether the run changes nothing.
            type: bool
            default: false
  apt_offer:
    description: Check whether apt finds what roles are going to install.
    type: dict
    suboptions:
      plans:
        description:
          - By role, what this module returned for it. C(packages.sources) are the sets of packages that it installs.
          - Of a role whose plan is C(refused) nothing else is reported.
        type: dict
        required: true
      mirror:
        description: C(kubegpu_apt_mirror).
        type: str
        default: ""
      answer:
        description: Result of M(kubegpu.autoscale.apt_offer_info).
        type: dict
        default: {}
  driver:
    description: Plan NVIDIA's driver, as the role C(nvidia_driver) installs it.
    type: dict
    suboptions:
      options:
        description: The role's options. Those that are left out have a default that depends on the server.
        type: dict
        required: true
        suboptions:
          state:
            description: C(nvidia_driver_state).
            type: str
            required: true
            choices: [present, existing, absent]
          source:
            description: C(nvidia_driver_source).
            type: str
            required: true
            choices: [cuda_repo, debian, ubuntu_prebuilt]
          version:
            description: C(nvidia_driver_version).
            type: str
            default: ""
          flavour:
            description: C(nvidia_driver_flavour).
            type: str
            default: auto
            choices: [auto, open, proprietary]
          nvlsm_version:
            description: C(nvidia_driver_nvlsm_version).
            type: str
            required: true
          versions:
            description: The rows of the version file, C(kubegpu_versions).
            type: dict
            required: true
          packages:
            description: C(nvidia_driver_packages).
            type: list
            elements: str
          fabric_packages:
            description: C(nvidia_driver_fabric_packages).
            type: list
            elements: str
          kernel_headers:
            description: C(nvidia_driver_kernel_headers).
            type: list
            elements: str
          mok_certificate:
            description: C(nvidia_driver_mok_certificate).
            type: str
          reboot_ok:
            description: C(nvidia_driver_reboot_ok).
            type: bool
          ignored_gpus:
            description: C(kubegpu_ignored_gpus).
            type: list
            elements: str
            default: []
          expected_gpus:
            description: C(nvidia_driver_expected_gpus).
            type: int
      survey:
        description: What was read on the server. Results of commands are passed as they were registered.
        type: dict
        required: true
        suboptions:
          gpu_facts:
            description: The facts of M(kubegpu.autoscale.gpu_facts).
            type: dict
            default: {}
          packages:
            description: Result of C(dpkg-query), with name, wish, state and version of each package.
            type: dict
            default: {}
          components:
            description: Results of C(apt-get indextargets), a line a component.
            type: list
            elements: dict
            default: []
          key_test:
            description: Result of C(mokutil --test-key).
            type: dict
            default: {}
          offered:
            description: Result of C(apt-cache madison).
            type: dict
            default: {}
          shown:
            description: Result of C(nvidia-smi) with PCI address, driver version and persistence mode.
            type: dict
            default: {}
          described:
            description: Result of C(nvidia-smi -q), where NVSwitches join the GPUs.
            type: dict
            default: {}
          rebooted:
            description: Whether the run has rebooted the server.
            type: bool
            default: false
          pin:
            description: C(stat) of the file with apt's pin.
            type: dict
            default: {}
          before:
            description: Result of M(ansible.builtin.slurp) for the list of packages that were installed before the pin.
            type: dict
            default: {}
          failure:
            description: Result of the task that failed to install.
            type: dict
            default: {}
          build_logs:
            description: The C(files) of M(ansible.builtin.find), logs of DKMS with errors.
            type: list
            elements: dict
            default: []
          build_log:
            description: Result of M(ansible.builtin.slurp) for the log that the plan names.
            type: dict
            default: {}
  containerd:
    description: Plan containerd, as the role C(containerd) installs it.
    type: dict
    suboptions:
      options:
        description: The role's options.
        type: dict
        required: true
        suboptions:
          state:
            description: C(containerd_state).
            type: str
            required: true
            choices: [present, absent]
          version:
            description: C(containerd_version).
            type: str
            default: ""
          versions:
            description: The rows of the version file, C(kubegpu_versions).
            type: dict
            required: true
          systemd_cgroup:
            description: C(containerd_systemd_cgroup).
            type: bool
            required: true
          sandbox_image:
            description: C(containerd_sandbox_image).
            type: str
            required: true
          mirrored_registries:
            description: C(containerd_mirrored_registries).
            type: list
            elements: str
            required: true
          image_mirror:
            description: C(kubegpu_image_mirror).
            type: str
            default: ""
          proxy:
            description: C(kubegpu_proxy).
            type: str
            default: ""
          no_proxy:
            description: C(kubegpu_no_proxy).
            type: list
            elements: str
            default: []
      paths:
        description: Where containerd has its files.
        type: dict
        required: true
        suboptions:
          config:
            description: Its main configuration.
            type: str
            required: true
          drop_ins:
            description: Folder of files that the main configuration imports.
            type: str
            required: true
          registries:
            description: Folder of settings of registries.
            type: str
            required: true
          proxy:
            description: Part of its unit with the proxy.
            type: str
            required: true
          socket:
            description: The socket that it makes when it starts.
            type: str
            required: true
          pod_network:
            description: Configuration of the pod network, which it reads when it starts.
            type: str
            required: true
          programs:
            description: Folders of its program.
            type: list
            elements: str
            required: true
          data:
            description: Folders of its images and containers.
            type: list
            elements: str
            required: true
      survey:
        description: What was read on the server. Results of tasks are passed as they were registered.
        type: dict
        required: true
        suboptions:
          runtimes:
            description: Programs of other container runtimes, as M(kubegpu.autoscale.server_info) returns them.
            type: list
            elements: str
            default: []
          packages:
            description: Result of C(dpkg-query), with name, state and version of containerd's packages.
            type: dict
            default: {}
          found:
            description: Result of M(ansible.builtin.find) for containerd's files, with checksums.
            type: dict
            default: {}
          main:
            description: Result of M(ansible.builtin.slurp) for the main configuration.
            type: dict
            default: {}
          plugins:
            description: Result of C(ctr plugins list).
            type: dict
            default: {}
          purge:
            description: Result of M(ansible.builtin.apt) that would remove the package.
            type: dict
            default: {}
          tasks:
            description: Result of M(ansible.builtin.find) for folders of containers that run.
            type: dict
            default: {}
          pin:
            description: C(stat) of the file with apt's pin.
            type: dict
            default: {}
          before:
            description: Result of M(ansible.builtin.slurp) for the list of packages that were installed before the pin.
            type: dict
            default: {}
          programs:
            description: Result of M(ansible.builtin.find) for containerd's program after the package was removed.
            type: dict
            default: {}
          check_mode:
            description: Whether the run changes nothing.
            type: bool
            default: false
  drop_in:
    description: Plan one drop-in of containerd's configuration.
    type: dict
    suboptions:
      options:
        description: The drop-in.
        type: dict
        required: true
        suboptions:
          state:
            description: Whether it is written or removed.
            type: str
            required: true
            choices: [present, absent]
          name:
            description: Name of the file.
            type: str
            required: true
          settings:
            description: The same settings in the words of configuration version C(2), and of C(3) and later.
            type: dict
            default: {}
          config:
            description: C(containerd_config), merged over the settings.
            type: dict
            default: {}
      paths:
        description: Where containerd has its files.
        type: dict
        required: true
        suboptions:
          config:
            description: Its main configuration.
            type: str
            required: true
          drop_ins:
            description: Folder of files that the main configuration imports.
            type: str
            required: true
          registries:
            description: Folder of settings of registries.
            type: str
            required: true
          proxy:
            description: Part of its unit with the proxy.
            type: str
            required: true
          socket:
            description: The socket that it makes when it starts.
            type: str
            required: true
          pod_network:
            description: Configuration of the pod network, which it reads when it starts.
            type: str
            required: true
          programs:
            description: Folders of its program.
            type: list
            elements: str
            required: true
          data:
            description: Folders of its images and containers.
            type: list
            elements: str
            required: true
      survey:
        description: What was read on the server. Results of tasks are passed as they were registered.
        type: dict
        required: true
        suboptions:
          found:
            description: Result of M(ansible.builtin.find) for containerd's files, with checksums.
            type: dict
            default: {}
          main:
            description: Result of M(ansible.builtin.slurp) for the main configuration.
            type: dict
            default: {}
          latest:
            description: Result of C(containerd config default).
            type: dict
            default: {}
          later:
            description: Result of M(ansible.builtin.find) for drop-ins of a later version.
            type: dict
            default: {}
  toolkit:
    description: Plan NVIDIA's container toolkit, as the role C(nvidia_container_toolkit) installs it.
    type: dict
    suboptions:
      options:
        description: The role's options.
        type: dict
        required: true
        suboptions:
          state:
            description: C(nvidia_container_toolkit_state).
            type: str
            required: true
            choices: [present, absent]
          version:
            description: C(nvidia_container_toolkit_version).
            type: str
            default: ""
          versions:
            description: The rows of the version file, C(kubegpu_versions).
            type: dict
            required: true
          runtimes:
            description: C(nvidia_container_toolkit_runtimes).
            type: list
            elements: str
            required: true
            choices: [containerd, docker]
          default_runtime:
            description: C(nvidia_container_toolkit_default_runtime).
            type: bool
            required: true
          systemd_cgroup:
            description: C(nvidia_container_toolkit_systemd_cgroup).
            type: bool
            required: true
          verify_container:
            description: C(nvidia_container_toolkit_verify_container).
            type: bool
            required: true
      survey:
        description: What was read on the server. Results of tasks are passed as they were registered.
        type: dict
        required: true
        suboptions:
          gpu_facts:
            description: The facts of M(kubegpu.autoscale.gpu_facts).
            type: dict
            default: {}
          installed:
            description: Result of C(dpkg-query), with name, state and version of the toolkit.
            type: dict
            default: {}
          spec:
            description: Result of M(ansible.builtin.find) for a CDI specification of the driver's release.
            type: dict
            default: {}
          devices:
            description: Result of C(nvidia-ctk cdi list).
            type: dict
            default: {}
          modes:
            description: Result of C(nvidia-smi) with index and MIG mode of each GPU.
            type: dict
            default: {}
          listed:
            description: Result of C(nvidia-smi --list-gpus).
            type: dict
            default: {}
          shown:
            description: Result of M(kubegpu.autoscale.container_gpus_info).
            type: dict
            default: {}
  docker:
    description: Plan Docker, as the role C(docker) installs it.
    type: dict
    suboptions:
      options:
        description: The role's options.
        type: dict
        required: true
        suboptions:
          state:
            description: C(docker_state).
            type: str
            required: true
            choices: [present, existing, absent]
          version:
            description: C(docker_version).
            type: str
            default: ""
          versions:
            description: The rows of the version file, C(kubegpu_versions).
            type: dict
            required: true
          verify_container:
            description: C(docker_verify_container).
            type: bool
            required: true
      survey:
        description: What was read on the server. Results of tasks are passed as they were registered.
        type: dict
        required: true
        suboptions:
          gpu_facts:
            description: The facts of M(kubegpu.autoscale.gpu_facts).
            type: dict
            default: {}
          packages:
            description: Result of C(dpkg-query), with name, state and version of packages with Docker's programs.
            type: dict
            default: {}
          source:
            description: C(stat) of the source of the repository that the role C(containerd) configures.
            type: dict
            default: {}
          shown:
            description: Result of M(kubegpu.autoscale.container_gpus_info).
            type: dict
            default: {}
          runtimes:
            description: C(nvidia_container_toolkit_runtimes).
            type: list
            elements: str
            default: []
          operator_roles:
            description: Roles in whose place the GPU operator works.
            type: list
            elements: str
            default: []
  docker_daemon:
    description: Plan the runtime C(nvidia) in Docker's settings.
    type: dict
    suboptions:
      options:
        description: The options of the role C(nvidia_container_toolkit), and the file.
        type: dict
        required: true
        suboptions:
          state:
            description: C(nvidia_container_toolkit_state).
            type: str
            required: true
            choices: [present, absent]
          default_runtime:
            description: C(nvidia_container_toolkit_default_runtime).
            type: bool
            required: true
          path:
            description: Docker's settings, C(daemon.json).
            type: str
            required: true
      survey:
        description: What was read on the server. Results of tasks are passed as they were registered.
        type: dict
        required: true
        suboptions:
          file:
            description: C(stat) of the file.
            type: dict
            default: {}
          text:
            description: Result of M(ansible.builtin.slurp) for the file.
            type: dict
            default: {}
          has_docker:
            description: Whether C(dockerd) is installed.
            type: bool
            default: false
          runs:
            description: Whether it runs.
            type: bool
            default: false
  kubernetes:
    description: Plan Kubernetes, as the role C(kubernetes) brings it by kubeadm.
    type: dict
    suboptions:
      options:
        description: The role's options.
        type: dict
        required: true
        suboptions:
          state:
            description: C(kubernetes_state).
            type: str
            required: true
            choices: [present, absent]
          version:
            description: C(kubernetes_version).
            type: str
            required: true
          versions:
            description: The rows of the version file, C(kubegpu_versions).
            type: dict
            required: true
          ignore_preflight_errors:
            description: C(kubernetes_ignore_preflight_errors).
            type: list
            elements: str
            default: []
          swap:
            description: C(kubernetes_swap).
            type: str
            required: true
            choices: [disable, refuse, allow]
          control_plane_endpoint:
            description: C(kubernetes_control_plane_endpoint).
            type: str
            default: ""
          api_address:
            description: C(kubernetes_api_address).
            type: str
            default: ""
          kube_vip_address:
            description: C(kubernetes_kube_vip_address).
            type: str
            default: ""
          kube_vip_interface:
            description: C(kubernetes_kube_vip_interface).
            type: str
            default: ""
          lost_nodes:
            description: C(kubernetes_lost_nodes).
            type: list
            elements: str
            default: []
          node_ip:
            description: C(kubernetes_node_ip).
            type: str
            default: ""
          pod_subnet:
            description: C(kubernetes_pod_subnet).
            type: str
            required: true
          service_subnet:
            description: C(kubernetes_service_subnet).
            type: str
            required: true
          cni:
            description: C(kubernetes_cni).
            type: str
            required: true
            choices: [bridge, flannel, calico, cilium, manifest, none]
          cni_values:
            description: C(kubernetes_cni_values).
            type: dict
            default: {}
          cni_manifest:
            description: C(kubernetes_cni_manifest).
            type: str
            default: ""
          cni_manifest_checksum:
            description: C(kubernetes_cni_manifest_checksum).
            type: str
            default: ""
          schedule_on_control_plane:
            description: C(kubernetes_schedule_on_control_plane).
            type: bool
            required: true
          hpa_sync_period:
            description: C(kubernetes_hpa_sync_period).
            type: int
            required: true
          hpa_concurrent_syncs:
            description: C(kubernetes_hpa_concurrent_syncs).
            type: int
            required: true
          controller_manager_args:
            description: C(kubernetes_controller_manager_args).
            type: dict
            default: {}
          control_plane_metrics:
            description: C(kubernetes_control_plane_metrics).
            type: bool
            required: true
          cluster_config:
            description: C(kubernetes_cluster_config).
            type: dict
            default: {}
          kubelet_config:
            description: C(kubernetes_kubelet_config).
            type: dict
            default: {}
          kubeproxy_config:
            description: C(kubernetes_kubeproxy_config).
            type: dict
            default: {}
          patches:
            description: C(kubernetes_patches).
            type: dict
            default: {}
      controller:
        description: What the run has on the controller.
        type: dict
        required: true
        suboptions:
          kubeconfig_option:
            description: C(kubegpu_kubeconfig).
            type: str
            required: true
          kubeconfig_file:
            description: The same with the home folder filled in.
            type: str
            required: true
          kubeconfig_real:
            description: Its absolute path.
            type: str
            required: true
          kubeconfig_exists:
            description: Whether the file exists.
            type: bool
            required: true
          playbook_folder:
            description: Folder of the playbook, where a relative path would lead.
            type: str
            required: true
          systemd_cgroup:
            description: Whether containerd uses the cgroups of systemd.
            type: bool
            default: true
          requests:
            description: Requests a second that the controller manager may send.
            type: int
            required: true
      run:
        description: The servers of the run.
        type: dict
        required: true
        suboptions:
          control_planes:
            description: Hosts of the group C(kube_control_plane), in the order of the inventory.
            type: list
            elements: str
            required: true
          hosts:
            description: C(ansible_play_hosts).
            type: list
            elements: str
            required: true
          all_hosts:
            description: C(ansible_play_hosts_all).
            type: list
            elements: str
            required: true
          nodes:
            description: Names of the nodes of these hosts, in the same order; empty unless nodes are lost.
            type: list
            elements: str
            default: []
          servers:
            description: Control planes as they have described themselves, in this play or in one before.
            type: list
            elements: dict
            required: true
            suboptions:
              host:
                description: Name in the inventory.
                type: str
                required: true
              node:
                description: Name of the node.
                type: str
                required: true
              state:
                description: C(kubernetes_state) of this server.
                type: str
                required: true
              is_complete:
                description: Whether it is a control plane whose init or join has ended.
                type: bool
                required: true
              addresses:
                description: All addresses of the server.
                type: list
                elements: str
                default: []
          reached:
            description: Results of M(ansible.builtin.wait_for_connection) for control planes that the run leaves out.
              One that does not answer has a C(msg).
            type: list
            elements: dict
            default: []
          elsewhere:
            description: Results of M(ansible.builtin.stat) for those that answer, of the file by which they are
              complete.
            type: list
            elements: dict
            default: []
      survey:
        description: What was read on the server and in its cluster. Results of tasks are passed as they were
          registered.
        type: dict
        required: true
        suboptions:
          node:
            description: Name of the server's node.
            type: str
            required: true
          default_route:
            description: The fact C(default_ipv4).
            type: dict
            default: {}
          files:
            description: The C(files) of M(ansible.builtin.find), with their checksums.
            type: list
            elements: dict
            default: []
          swaps:
            description: Devices and files that the server swaps to, as M(kubegpu.autoscale.server_info) returns them.
            type: list
            elements: str
            default: []
          packages:
            description: Result of C(dpkg-query), with name and version of kubelet and kubeadm.
            type: dict
            default: {}
          applied:
            description: Result of M(ansible.builtin.slurp) for the documents that the node was given.
            type: dict
            default: {}
          api:
            description: Result of M(ansible.builtin.uri) for the later address of the API server.
            type: dict
            default: {}
          iptables:
            description: Result of M(ansible.builtin.stat) for the program iptables.
            type: dict
            default: {}
          nodes:
            description: Result of C(kubectl get nodes --output json).
            type: dict
            default: {}
          etcd:
            description: Result of M(ansible.builtin.uri) for the list of etcd's members.
            type: dict
            default: {}
          etcd_health:
            description: Results of M(ansible.builtin.uri) for C(/health), with the member as C(item).
            type: list
            elements: dict
            default: []
          metrics_addresses:
            description: Result of C(kubectl get nodes) with the internal addresses.
            type: dict
            default: {}
          kubeadm_config:
            description: Result of M(kubernetes.core.k8s_info) for the ConfigMap C(kubeadm-config).
            type: dict
            default: {}
          node_before:
            description: Result of M(kubernetes.core.k8s_info) for the node, before an upgrade.
            type: dict
            default: {}
          before:
            description: Result of M(ansible.builtin.slurp) for what the upgrade wrote down when it began.
            type: dict
            default: {}
  reach:
    description: Plan the proof that pods of all nodes reach each other.
    type: dict
    suboptions:
      cni:
        description: C(kubernetes_cni).
        type: str
        required: true
      wait_timeout:
        description: C(kubernetes_wait_timeout).
        type: int
        required: true
      created:
        description: Result of C(kubectl create) for the DaemonSet of the proof.
        type: dict
        default: {}
      pods:
        description: Result of C(kubectl get pods) for its pods, and for those of a run that was killed.
        type: dict
        default: {}
      dns:
        description: Result of C(kubectl get pods) for the pods of the cluster's DNS.
        type: dict
        default: {}
      peers:
        description: The C(peers) that an earlier plan has returned.
        type: list
        elements: dict
      pod:
        description: UID of the server's own pod; empty without one.
        type: str
        default: ""
      asked:
        description: Result of M(kubegpu.autoscale.pod_reach).
        type: dict
        default: {}
      failure:
        description: Result of the task that failed.
        type: dict
        default: {}
attributes:
  check_mode:
    description: Can run in check mode and return what it would return otherwise.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Plan the driver
  kubegpu.autoscale.node_plan:
    host:
      name: "{{ inventory_hostname }}"
      system: Debian 12
      kernel: "{{ ansible_facts['kernel'] }}"
      architecture: "{{ ansible_facts['architecture'] }}"
    driver:
      options:
        state: present
        source: cuda_repo
        nvlsm_version: "{{ kubegpu_versions.packages.nvlsm }}"
        versions: "{{ kubegpu_versions }}"
      survey:
        gpu_facts: "{{ ansible_facts['gpu_facts'] }}"
        packages: "{{ listed }}"
  register: plan

- name: Fail if the driver cannot work
  ansible.builtin.assert:
    that: plan.refused | length == 0
    fail_msg: "{{ plan.refused | join(' ') }}"
"""

RETURN = r"""
refused:
  description: Why nothing is to be changed, a sentence each.
  returned: always
  type: list
  elements: str
broken:
  description: What is wrong after the work, a sentence each.
  returned: always
  type: list
  elements: str
notices:
  description: What should be known after the work, a sentence each.
  returned: always
  type: list
  elements: str
hop:
  description: The hop of the doctor's report that the plan is about.
  returned: for C(server), C(driver), C(containerd), C(toolkit), C(docker) and C(kubernetes)
  type: str
  sample: driver
findings:
  description:
    - What the doctor reports about the server, see P(kubegpu.autoscale.gpu_doctor#module).
    - These are the refusals of a role that is to install something, and what is missing or does not work now.
  returned: for C(server), C(driver), C(containerd), C(toolkit), C(docker) and C(kubernetes)
  type: list
  elements: dict
  contains:
    id: {description: Name of the finding., type: str, sample: DRIVER_MISSING}
    hop: {description: Its hop., type: str, sample: driver}
    server: {description: Name of the server in the inventory., type: str, sample: gpu1}
    severity: {description: V(error) or V(warning)., type: str, sample: error}
    seen: {description: What was seen., type: str, sample: has 2 GPUs (hopper) and no NVIDIA driver}
    cause: {description: The cause., type: str}
    fix: {description: The next step., type: str}
    doc: {description: Page and section in the documentation., type: str, sample: docs/doctor/driver.md#driver_missing}
    is_consequence: {description: Whether an error of the same server or node may explain it., type: bool}
    explained_by: {description: Hops whose errors may explain it; empty for all., type: list, elements: str}
packages:
  description: Repository and packages, with what is installed and what has to move.
  returned: always
  type: dict
files:
  description: Paths of files that are written on the server, by kind; C(all) has each that the role may write.
  returned: always
  type: dict
steps:
  description: The steps of the role, each with whether it is taken.
  returned: always
  type: dict
reboot:
  description: Whether the server may reboot, whether it has to, and why.
  returned: always
  type: dict
  sample: {allowed: true, required: true, reason: "driver 570.86.15 is loaded, but 580.95.05 is installed"}
kubeadm:
  description: Documents for kubeadm, the one to join by without its token, and words for its command line.
  returned: for C(kubernetes)
  type: dict
gone:
  description: Nodes that are gone and members of etcd to delete, or C(refused), why none may be deleted.
  returned: for C(kubernetes)
  type: dict
upgrade:
  description: Whether the node has to be upgraded, by which command, or C(refused), why it may not be.
  returned: for C(kubernetes)
  type: dict
peers:
  description: Pods that each node asks, with the UID that each has to answer.
  returned: for C(reach)
  type: list
  elements: dict
"""
