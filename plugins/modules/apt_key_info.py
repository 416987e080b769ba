#!/usr/bin/python
# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: apt_key_info
short_description: Download the key of an apt repository
version_added: 0.1.0
description:
  - Downloads a file from an apt repository, for example its public key, optionally through a proxy.
  - M(ansible.builtin.uri) gets a proxy from the environment of its command, where the process list shows the password.
    This module gets it as an option, and never shows it.
  - Changes nothing.
author:
  - kubegpu.autoscale contributors (@kubegpu)
options:
  url:
    description: URL of the file.
    type: str
    required: true
  proxy:
    description: Proxy, C(http://user:password@host:port). The default is the proxy in the server's environment.
    type: str
    default: ""
  allow_unauthorized:
    description: Whether to accept a response that requires a login. The content is then empty.
    type: bool
    default: false
  timeout:
    description: Seconds to wait for a response.
    type: int
    default: 30
attributes:
  check_mode:
    description: Runs in check mode, and returns the same as otherwise.
    support: full
  diff_mode:
    description: The module changes nothing, so it returns no diff.
    support: none
"""

EXAMPLES = r"""
- name: Download the key
  kubegpu.autoscale.apt_key_info:
    url: https://nvidia.github.io/libnvidia-container/gpgkey
    proxy: http://user:password@proxy.example:3128
  register: key

- name: Compare it with the pinned fingerprint
  ansible.builtin.assert:
    that: key.result.content | kubegpu.autoscale.openpgp_fingerprints == [fingerprint]
"""

RETURN = r"""
result:
  description: The response.
  returned: success
  type: dict
  contains:
    content:
      description: Text of the file. Empty if the repository requires a login.
      type: str
      sample: "-----BEGIN PGP PUBLIC KEY BLOCK-----"
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url
from ansible_collections.kubegpu.autoscale.plugins.module_utils.secrets import masked_texts, without_login

ARGUMENTS: dict[str, Any] = {
    "url": {"type": "str", "required": True},
    "proxy": {"type": "str", "default": "", "no_log": True},
    "allow_unauthorized": {"type": "bool", "default": False},
    "timeout": {"type": "int", "default": 30},
}
_UNAUTHORIZED = (401, 403)


@contextmanager
def by_proxy(proxy: str) -> Iterator[None]:
    """This process alone uses it: what a command has in its own environment is not in the process list."""
    before = dict(os.environ)
    if proxy:
        os.environ.update(dict.fromkeys(("http_proxy", "https_proxy"), proxy))
        os.environ.pop("no_proxy", None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def download(url: str, *, proxy: str, allow_unauthorized: bool, timeout: int) -> str:
    """Raises: OSError if there is no answer, or another one than the file."""
    try:
        with by_proxy(proxy):
            return open_url(url, timeout=timeout).read().decode(errors="replace")
    except HTTPError as error:
        if allow_unauthorized and error.code in _UNAUTHORIZED:
            return ""
        raise


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True, no_log=True)  # no line in the journal
    options = dict(module.params)
    shown = without_login(options["url"])
    module.params["url"] = shown  # -vvv shows the parameters
    module.no_log_values.update(masked_texts(options["url"], options["proxy"]))
    try:
        content = download(**options)
    except HTTPError as error:
        module.fail_json(msg=f"{shown} answers {error.code} {error.reason}.")
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"no answer from {shown}: {getattr(error, 'reason', error)}.")
    module.exit_json(changed=False, result={"content": content})


if __name__ == "__main__":
    main()
