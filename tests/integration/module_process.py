"""One run of a module, in a process of its own as for each task of Ansible; its options come as JSON on stdin."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

from ansible.module_utils.testing import patch_module_args

sys.path.insert(0, str(Path(__file__).parents[1]))
from collection import install

install()
module = import_module("ansible_collections.kubegpu.autoscale.plugins.modules." + sys.argv[1])
with patch_module_args(json.load(sys.stdin)):
    module.main()
