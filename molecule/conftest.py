from __future__ import annotations

import testinfra.backend

testinfra.backend.BACKENDS["ansible"] = "connection.ServerBackend"
