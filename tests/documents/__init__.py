"""The Python blocks of the shared documents, as tests see them."""

import pytest

pytest.register_assert_rewrite("tests.documents.authored")  # its checks are assertions too
