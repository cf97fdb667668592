"""Suites that hold every implementation of a Protocol to the same behaviour, ours and other people's."""

import pytest

pytest.register_assert_rewrite("conformance.engine")
