"""Some of the conformance tests again, on stores with a schema or a prefix: each kind of statement at least once."""

from __future__ import annotations

from conformance.store.test_access import *  # noqa: F403
from conformance.store.test_cancel import *  # noqa: F403
from conformance.store.test_listing import *  # noqa: F403
from conformance.store.test_publish_within import *  # noqa: F403
from conformance.store.test_random_walk import *  # noqa: F403
