#!/usr/bin/python
# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: apt_offer_info
short_description: List packages that apt would not find, before anything is installed
version_added: 0.1.0
description:
  - Queries dpkg and apt for packages, and returns those that are neither installed nor available.
  - A repository does not need to be configured yet. Its lists are then read into a temporary folder.
  - Also returns what apt has of this collection, so that roles do not look again.
author:
  - kubegpu.autoscale contributors (@kubegpu)
options:
  repositories:
    description: Repositories, and the packages to look up in each.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the repository in the result.
        type: str
        required: true
      uri:
        description: URL of the repository. Empty for the repositories that are configured on the server.
        type: str
        required: true
      suite:
        description: Suite, or C(/) for a flat repository.
        type: str
        required: true
      components:
        description: Components. Empty for a flat repository.
        type: str
        default: ""
      packages:
        description: Packages as C(name=version), where C(*) is a wildcard, or as C(name).
        type: list
        elements: str
        required: true
      hosts:
        description: Other hosts that the repository redirects to. They are also reached through O(proxy).
        type: list
        elements: str
        default: []
  proxy:
    description: Proxy for repositories with a URL, C(http://host:port).
    type: str
    default: ""
attributes:
  check_mode:
    description: Runs in check mode, and returns the same as otherwise.
    support: full
  diff_mode:
    description: The module changes nothing, so it returns no diff.
    support: none
"""

EXAMPLES = r"""
- name: Check that Docker has this containerd for Debian 12
  kubegpu.autoscale.apt_offer_info:
    repositories:
      - name: docker
        uri: https://download.docker.com/linux/debian
        suite: bookworm
        components: stable
        packages: ["containerd.io=2.3.6-*"]
  register: offer
  failed_when: offer.result.missing | length > 0
"""

RETURN = r"""
result:
  description: Result of the query.
  returned: always
  type: dict
  contains:
    missing:
      description: Packages that are neither installed nor available in that version.
      type: list
      elements: dict
      contains:
        repository: {description: Name of its repository., type: str, sample: docker}
        uri: {description: URL of the repository., type: str, sample: "https://download.docker.com/linux/debian"}
        package: {description: Package as in the query., type: str, sample: "containerd.io=2.1.9-*"}
        offered:
          description: Available versions, newest first, at most five.
          type: list
          elements: str
          sample: ["2.3.6-1~debian.12~bookworm"]
    installed:
      description: Installed packages among those of the query.
      type: list
      elements: str
      sample: ["containerd.io=2.3.6-1~debian.12~bookworm"]
    files:
      description: Files of this collection in C(/etc/apt), and the lists of repositories that apt has read.
      type: list
      elements: dict
      contains:
        path: {description: The file., type: str, sample: /etc/apt/preferences.d/kubegpu-docker.pref}
        checksum: {description: SHA-1 of its content. Empty for a list., type: str,
          sample: 2fd4e1c67a2d28fced849ee1bb76e7391b93eb12}
        mode: {description: Its mode., type: str, sample: "0644"}
        uid: {description: Its owner., type: int, sample: 0}
        gid: {description: Its group., type: int, sample: 0}
    failures:
      description: Messages of apt about repositories that it could not read.
      type: list
      elements: str
      sample: ["Failed to fetch https://download.docker.com/linux/debian/dists/nowhere/InRelease  404  Not Found"]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.kubegpu.autoscale.plugins.module_utils.secrets import masked_texts
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.apt_offer import Repository, look

REPOSITORY: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "uri": {"type": "str", "required": True},
    "suite": {"type": "str", "required": True},
    "components": {"type": "str", "default": ""},
    "packages": {"type": "list", "elements": "str", "required": True},
    "hosts": {"type": "list", "elements": "str", "default": []},
}
ARGUMENTS: dict[str, Any] = {
    "repositories": {"type": "list", "elements": "dict", "required": True, "options": REPOSITORY},
    "proxy": {"type": "str", "default": "", "no_log": True},  # may have a password
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    module.no_log_values.update(masked_texts(module.params))
    repositories = [
        Repository(**{**repository, "packages": tuple(repository["packages"]), "hosts": tuple(repository["hosts"])})
        for repository in module.params["repositories"]
    ]
    try:
        module.exit_json(changed=False, result=look(repositories, module.params["proxy"]))
    except OSError as error:
        module.fail_json(msg=f"apt: {error}")


if __name__ == "__main__":
    main()
