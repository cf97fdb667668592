"""What the client keeps of an instance and of a service has the names that the gateway's own models have."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from aenv.base import models
from aenv.base.errors import EnvironmentError
from aenv.client.instance_replies import Instance, Service, value_of

OURS = {"environment", "version", "sent"}  # `env` in parts, and the reply itself


@pytest.mark.parametrize(("kind", "model"), [(Instance, models.EnvInstance), (Service, models.EnvService)])
def test_its_fields_are_fields_of_the_reply(kind: Any, model: Any) -> None:
    assert {each.name for each in fields(kind)} - OURS <= model.model_fields.keys()


def test_an_instance_is_read_with_the_environment_that_it_is_of() -> None:
    sent = {"id": "a-1", "status": "Running", "env": {"name": "a", "version": "1.0.0"}, "ip": None, "labels": {}}
    found = Instance.of(sent)
    assert (found.environment, found.version, found.ip, found.tools) == ("a", "1.0.0", None, None)
    assert found.sent == sent


def test_a_service_is_read_with_its_replicas() -> None:
    sent = {"id": "a", "status": "Running", "replicas": 2, "instances": ["x", "y"], "service_url": "http://h/a"}
    found = Service.of(sent)
    assert (found.replicas, found.available_replicas, found.instances) == (2, 0, ["x", "y"])
    assert (found.service_url, found.environment) == ("http://h/a", None)


@pytest.mark.parametrize("sent", [None, [], "Running", {"id": "a-1"}, {"id": 1, "status": "Running"}])
@pytest.mark.parametrize("kind", [Instance, Service])
def test_a_reply_that_is_something_else_is_an_error_that_shows_it(kind: Any, sent: Any) -> None:
    with pytest.raises(EnvironmentError, match="does not describe"):
        kind.of(sent)


def test_the_token_of_an_instance_is_not_shown_where_the_instance_is() -> None:
    found = Instance.of({"id": "a-1", "status": "Running", "token": "secret"})
    assert "secret" not in repr(found)


@pytest.mark.parametrize("sent", [None, [], {}, {"url": None}, {"url": 5}])
def test_a_reply_without_the_value_that_is_asked_for_is_an_error_that_shows_it(sent: Any) -> None:
    assert value_of({"url": "http://a"}, "url", str) == "http://a"
    with pytest.raises(EnvironmentError, match="the gateway's reply has no 'url'"):
        value_of(sent, "url", str)
