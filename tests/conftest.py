from __future__ import annotations

from collection import install
from hypothesis import settings

install()
# In CI hypothesis takes its profile `ci` by itself: the same examples in each run. A run by hand looks for new ones.
settings.register_profile("default", print_blob=True)
