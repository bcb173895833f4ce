"""A bucket, and a job that has committed what the test says."""

import pytest

from inboxes import World


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path)
