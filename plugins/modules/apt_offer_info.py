#!/usr/bin/python
# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: apt_offer_info
short_description: Which packages apt would not find, before anything is installed
version_added: 0.1.0
description:
  - Asks dpkg and apt for packages that are to come, and returns those that neither has.
  - A repository need not be configured yet. Its lists are then read into a folder of their own, which goes again.
author:
  - kubegpu.autoscale contributors (@kubegpu)
options:
  repositories:
    description: Repositories, and what is to come from each.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: By which the answer names it.
        type: str
        required: true
      uri:
        description: Its address; empty for those that the server's apt is set to.
        type: str
        required: true
      suite:
        description: Suite; C(/) of a flat repository.
        type: str
        required: true
      components:
        description: Components; none of a flat repository.
        type: str
        default: ""
      packages:
        description: Packages as C(name=version), where C(*) stands for anything, or by name alone.
        type: list
        elements: str
        required: true
      hosts:
        description: Other hosts that the repository redirects to. The way there is by O(proxy) as well.
        type: list
        elements: str
        default: []
  proxy:
    description: Proxy on the way to repositories with an address, C(http://host:port).
    type: str
    default: ""
attributes:
  check_mode:
    description: Can run in check mode and return what it would return otherwise.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Ask whether Docker has this containerd for Debian 12
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
  description: What apt said.
  returned: always
  type: dict
  contains:
    missing:
      description: Packages that are not installed so, and that no repository has so.
      type: list
      elements: dict
      contains:
        repository: {description: Name of the repository that it should come from., type: str, sample: docker}
        uri: {description: Its address., type: str, sample: "https://download.docker.com/linux/debian"}
        package: {description: The package as it was asked for., type: str, sample: "containerd.io=2.1.9-*"}
        offered:
          description: Versions that there are, newest first, five at most.
          type: list
          elements: str
          sample: ["2.3.6-1~debian.12~bookworm"]
    failures:
      description: What apt said of repositories that it could not read.
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
