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
  - Computes from the options of a role, and from what its tasks read on a server, what the role does on that server.
  - Runs on the controller and reads nothing itself. The same input always gives the same plan.
  - Omit input that no task has read yet, or pass the result of a skipped task.
options:
  host:
    description: The server.
    type: dict
    required: true
    suboptions:
      name:
        description: Name in the inventory.
        type: str
        required: true
      system:
        description: Distribution and version, for example C(Ubuntu 24.04) or C(Debian 12).
        type: str
        required: true
      release:
        description: Codename, for example C(noble) or C(bookworm).
        type: str
        default: ""
      kernel:
        description: Release of the running kernel.
        type: str
        required: true
      architecture:
        description: Architecture as reported by the kernel.
        type: str
        required: true
      is_local:
        description: Whether the server is the controller, so that no task can reboot it.
        type: bool
        default: false
      clusters:
        description: Files that show that it is a node of a cluster, as M(kubegpu.autoscale.server_info) returns them.
        type: list
        elements: str
        default: []
  server:
    description: Check whether a server can become a node.
    type: dict
    suboptions:
      user:
        description: User that runs the tasks.
        type: str
        required: true
      uid:
        description: ID of that user.
        type: int
        required: true
      wanted_gib:
        description: Required free disk space by folder, C(kubegpu_free_gib).
        type: dict
        default: {}
      free_gib:
        description: Free disk space, as M(kubegpu.autoscale.server_info) returns it.
        type: dict
        default: {}
      clock_ahead:
        description: Difference to the controller's clock in seconds, as M(kubegpu.autoscale.server_info) returns it.
        type: float
        default: 0.0
      unreached:
        description: Ports of other servers that it does not reach, as M(kubegpu.autoscale.ports_info) returns them.
        type: dict
        default: {}
  servers:
    description: Check whether the servers of a play can become one cluster.
    type: dict
    suboptions:
      wanted:
        description: Servers at the start of the play.
        type: list
        elements: str
        default: []
      remaining:
        description: Servers that have not failed.
        type: list
        elements: str
        default: []
      needed:
        description: Servers without which the play fails.
        type: list
        elements: str
        default: []
      fail_fast:
        description: Whether the play fails if any server fails, C(kubegpu_fail_fast).
        type: bool
        default: true
      hostnames:
        description: Host names by inventory name.
        type: dict
        default: {}
      addresses:
        description: Addresses by inventory name, as P(kubegpu.autoscale.server_addresses#filter) returns them.
        type: dict
        default: {}
      control_planes:
        description: Control planes of the play.
        type: list
        elements: str
        default: []
      has_own_etcd:
        description: Whether etcd runs on the control planes.
        type: bool
        default: true
      network:
        description: Network of the pods, C(kubernetes_cni). Empty if the play creates no cluster.
        type: str
        default: ""
  apt:
    description: Plan a set of packages from one repository.
    type: dict
    suboptions:
      set:
        description: The set, as documented in the role C(_common).
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
            description: List of packages that were installed before.
            type: str
            required: true
          config:
            description: Proxy of the repository, and packages that unattended-upgrades must not upgrade.
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
    description: Check whether apt finds the packages that roles install.
    type: dict
    suboptions:
      plans:
        description:
          - Plans of this module by role. C(packages.sources) has the sets of packages that a role installs.
          - Nothing else is reported for a role whose plan is C(refused).
        type: dict
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
      paths:
        description: Files of a set, as in O(apt.paths). C(%s) stands for its name.
        type: dict
        default: {}
      sources:
        description: RV(kubegpu.autoscale.server_info#module:result.apt_sources).
        type: list
        elements: dict
        default: []
      answer:
        description: Result of M(kubegpu.autoscale.apt_offer_info).
        type: dict
        default: {}
  driver:
    description: Plan NVIDIA's driver, as the role C(nvidia_driver) installs it.
    type: dict
    suboptions:
      options:
        description: The role's options. Omitted options have a default that depends on the server.
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
            description: Results of C(apt-get indextargets), one line for each component.
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
            description: Result of C(nvidia-smi -q), if NVSwitches connect the GPUs.
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
          upgrade_ok:
            description: C(containerd_upgrade_ok).
            type: bool
            default: false
      paths:
        description: Paths of containerd's files.
        type: dict
        required: true
        suboptions:
          config:
            description: Main configuration.
            type: str
            required: true
          drop_ins:
            description: Folder of drop-ins that the main configuration imports.
            type: str
            required: true
          registries:
            description: Folder of registry settings.
            type: str
            required: true
          proxy:
            description: Drop-in of its systemd unit with the proxy.
            type: str
            required: true
          socket:
            description: Socket of containerd.
            type: str
            required: true
          pod_network:
            description: Configuration of the pod network.
            type: str
            required: true
          programs:
            description: Folders with its program.
            type: list
            elements: str
            required: true
          data:
            description: Folders with its images and containers.
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
            description: Result of M(ansible.builtin.find) for folders of running containers.
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
            description: The same settings for configuration version C(2), and for C(3) and later.
            type: dict
            default: {}
          config:
            description: C(containerd_config), merged over the settings.
            type: dict
            default: {}
      paths:
        description: Paths of containerd's files.
        type: dict
        required: true
        suboptions:
          config:
            description: Main configuration.
            type: str
            required: true
          drop_ins:
            description: Folder of drop-ins that the main configuration imports.
            type: str
            required: true
          registries:
            description: Folder of registry settings.
            type: str
            required: true
          proxy:
            description: Drop-in of its systemd unit with the proxy.
            type: str
            required: true
          socket:
            description: Socket of containerd.
            type: str
            required: true
          pod_network:
            description: Configuration of the pod network.
            type: str
            required: true
          programs:
            description: Folders with its program.
            type: list
            elements: str
            required: true
          data:
            description: Folders with its images and containers.
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
          upgrade_ok:
            description: C(nvidia_container_toolkit_upgrade_ok).
            type: bool
            default: false
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
            description: Roles that the GPU operator replaces.
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
            description: Whether Docker runs.
            type: bool
            default: false
  kubernetes:
    description: Plan Kubernetes, as the role C(kubernetes) installs it with kubeadm.
    type: dict
    suboptions:
      upkeep:
        description: The role's options of backups, certificates and status.
        type: dict
        suboptions:
          backup:
            description: C(kubernetes_backup).
            type: bool
            default: true
          backup_schedule:
            description: C(kubernetes_backup_schedule).
            type: str
            default: "*-*-* 02:00:00"
          backup_folder:
            description: C(kubernetes_backup_folder).
            type: str
            default: /var/lib/kubegpu/backups
          backup_copy:
            description: C(kubernetes_backup_copy).
            type: str
            default: ""
          backup_keep:
            description: C(kubernetes_backup_keep).
            type: int
            default: 7
          renew_certificates:
            description: C(kubernetes_renew_certificates).
            type: bool
            default: true
          renew_days:
            description: C(kubernetes_renew_days).
            type: int
            default: 60
          metrics_folder:
            description: C(kubernetes_metrics_folder).
            type: str
            default: /var/lib/node_exporter/textfile_collector
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
        description: Settings and files on the controller.
        type: dict
        required: true
        suboptions:
          kubeconfig_option:
            description: C(kubegpu_kubeconfig).
            type: str
            required: true
          kubeconfig_file:
            description: The same with the home folder expanded.
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
            description: Folder of the playbook, which relative paths are based on.
            type: str
            required: true
          systemd_cgroup:
            description: Whether containerd uses systemd cgroups.
            type: bool
            default: true
          requests:
            description: Requests per second that the controller manager can send.
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
            description: Node names of these hosts, in the same order. Empty unless nodes are lost.
            type: list
            elements: str
            default: []
          servers:
            description: Control plane servers with what this play or an earlier one read on them.
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
                description: Whether its init or join as a control plane node is complete.
                type: bool
                required: true
              addresses:
                description: All addresses of the server.
                type: list
                elements: str
                default: []
          reached:
            description: Results of M(ansible.builtin.wait_for_connection) for control plane servers outside of the run.
              The result has a C(msg) if the server does not answer.
            type: list
            elements: dict
            default: []
          elsewhere:
            description: For the servers that answer, results of M(ansible.builtin.stat) of the file that shows that
              they are complete.
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
            description: Swap devices and files, as M(kubegpu.autoscale.server_info) returns them.
            type: list
            elements: str
            default: []
          packages:
            description: Result of C(dpkg-query), with name and version of kubelet and kubeadm.
            type: dict
            default: {}
          applied:
            description: Result of M(ansible.builtin.slurp) for the documents that were applied to the node.
            type: dict
            default: {}
          api:
            description: Result of M(ansible.builtin.uri) for the configured address of the API server.
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
          hpas:
            description: Result of C(kubectl get horizontalpodautoscalers), if a change turns their feature gate off.
            type: dict
            default: {}
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
            description: Result of M(ansible.builtin.slurp) for the record that the upgrade wrote at its start.
            type: dict
            default: {}
          status:
            description: Result of M(ansible.builtin.slurp) for what the timer kubegpu-status wrote.
            type: dict
            default: {}
  reach:
    description: Plan the check that pods of all nodes reach each other.
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
        description: Result of C(kubectl create) for the DaemonSet of the check.
        type: dict
        default: {}
      pods:
        description: Result of C(kubectl get pods) for its pods, including those of a killed run.
        type: dict
        default: {}
      dns:
        description: Result of C(kubectl get pods) for the pods of the cluster's DNS.
        type: dict
        default: {}
      peers:
        description: C(peers) of an earlier plan.
        type: list
        elements: dict
      pod:
        description: UID of the server's pod, or empty.
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
  restore:
    description: Plan the restore of etcd from a backup.
    type: dict
    suboptions:
      wanted:
        description: C(kubernetes_restore_backup).
        type: str
        default: ""
      folder:
        description: C(kubernetes_backup_folder).
        type: str
        required: true
      control_planes:
        description: Hosts of the group C(kube_control_plane).
        type: list
        elements: str
        required: true
      hosts:
        description: C(ansible_play_hosts).
        type: list
        elements: str
        required: true
      members:
        description: C(host), and as C(stdout) what C(kubegpu_upkeep.py member) printed on it.
        type: list
        elements: dict
        default: []
      copies:
        description: Folders of complete backups on the controller.
        type: list
        elements: str
        default: []
  maintain:
    description: Plan what is due on a node, and whether it can reboot.
    type: dict
    suboptions:
      gpu_facts:
        description: The fact of M(kubegpu.autoscale.gpu_facts).
        type: dict
        default: {}
      packages:
        description: Result of C(dpkg-query) for the packages C(linux-*), with name and state.
        type: dict
        default: {}
      upgrades:
        description: Result of C(apt-get --simulate install --only-upgrade) for the kernel packages.
        type: dict
        default: {}
      reboot_required:
        description: Result of M(ansible.builtin.stat) for C(/run/reboot-required).
        type: dict
        default: {}
      runtime:
        description: Whether containerd or the container toolkit gets a newer release.
        type: bool
        default: false
      in_cluster:
        description: Whether the server is a node of the cluster.
        type: bool
        required: true
      marked:
        description: Whether an earlier run has cordoned the node.
        type: bool
        default: false
attributes:
  check_mode:
    description: Runs in check mode, and returns the same as otherwise.
    support: full
  diff_mode:
    description: The module changes nothing, so it returns no diff.
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
  description: Reasons to change nothing, one sentence each.
  returned: always
  type: list
  elements: str
broken:
  description: Problems after the changes, one sentence each.
  returned: always
  type: list
  elements: str
notices:
  description: Information after the changes, one sentence each.
  returned: always
  type: list
  elements: str
hop:
  description: Hop of the plan in the doctor's report.
  returned: for C(server), C(driver), C(containerd), C(toolkit), C(docker) and C(kubernetes)
  type: str
  sample: driver
findings:
  description:
    - Findings about the server for the doctor's report, see M(kubegpu.autoscale.gpu_doctor).
    - They have failed checks of a role before an installation, and what is missing or does not work.
  returned: for C(server), C(driver), C(containerd), C(toolkit), C(docker) and C(kubernetes)
  type: list
  elements: dict
  contains:
    id: {description: Name of the finding., type: str, sample: DRIVER_MISSING}
    hop: {description: Hop of the finding., type: str, sample: driver}
    server: {description: Name of the server in the inventory., type: str, sample: gpu1}
    severity: {description: V(error) or V(warning)., type: str, sample: error}
    seen: {description: The evidence., type: str, sample: has 2 GPUs (hopper) and no NVIDIA driver}
    cause: {description: The cause., type: str}
    fix: {description: The next step., type: str}
    doc: {description: Page and section in the documentation., type: str, sample: docs/doctor/driver.md#driver_missing}
    is_consequence: {description: Whether an error of the same server or node can explain it., type: bool}
    explained_by: {description: Hops whose errors can explain it. Empty means all., type: list, elements: str}
packages:
  description: Repository and packages, with what is installed and what changes.
  returned: always
  type: dict
files:
  description: Paths of the files to write on the server, by kind. C(all) has every file that the role can write.
  returned: always
  type: dict
steps:
  description: The steps of the role, each with whether it is executed.
  returned: always
  type: dict
reboot:
  description: Whether a reboot is allowed, whether it is required, and why.
  returned: always
  type: dict
  sample: {allowed: true, required: true, reason: "driver 570.86.15 is loaded, but 580.95.05 is installed"}
reached:
  description: Addresses and ports that each server has to reach on other servers, by inventory name.
  returned: for C(servers)
  type: dict
  sample: {gpu1: ["10.0.0.1:6443"], cp1: ["10.0.0.2:10250"]}
kubeadm:
  description: Documents for kubeadm (the join configuration without its token), and arguments for its command line.
  returned: for C(kubernetes)
  type: dict
gone:
  description: Lost nodes and etcd members to delete, or in C(refused) the reason why none can be deleted.
  returned: for C(kubernetes)
  type: dict
upgrade:
  description: Whether the node needs an upgrade, the command for it, or in C(refused) the reason why it cannot be
    upgraded.
  returned: for C(kubernetes)
  type: dict
peers:
  description: Pods that each node connects to, with the UID that each must return.
  returned: for C(reach)
  type: list
  elements: dict
"""
