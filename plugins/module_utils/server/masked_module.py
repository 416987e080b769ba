# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ..secrets import masked_texts


class MaskedModule(AnsibleModule):  # type: ignore[misc]
    """Masks secrets in the options before Ansible checks them: the error for a rejected option shows all options."""

    def _load_params(self) -> None:
        super()._load_params()
        self.no_log_values.update(masked_texts(self.params))

    def run(self, *command: str, data: str = "") -> tuple[int, str, str]:
        """Exit status, output and errors. No variable is expanded. Raises: OSError if the command cannot start."""
        how = {"environ_update": {"LC_ALL": "C.UTF-8"}, "expand_user_and_vars": False, "handle_exceptions": False}
        done: tuple[int, str, str] = self.run_command([*command], data=data, **how)
        return done
