"""The mock domain: a list of tasks, small enough to see what the machinery does."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from tau2_source import DomainFiles
from tau2_tables import Json, Pristine, Record, Tables, read_json
from tau2_toolkit import Toolkit, tool
from tau2_validation import built, dumped
from tau2_world import World

Status = Literal["pending", "completed"]


@dataclass
class Task:
    task_id: str
    title: str
    description: str | None = None
    status: Status = field(kw_only=True)


@dataclass
class User:
    user_id: str
    name: str
    tasks: list[str]


@dataclass
class MockDB:
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    tasks: dict[str, Task]
    users: dict[str, User]


@dataclass
class Notification:
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    notification_id: str
    message: str
    status: Literal["unread", "read"] = "unread"
    task_id: str | None = None


@dataclass
class MockUserDB:
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    notifications: dict[str, Notification] = field(default_factory=dict)


def load(folder: Path) -> Mock:
    """The mock domain's files."""
    return Mock(folder)


class Mock(DomainFiles):
    """The mock domain's files, and worlds made of them."""

    default_split = None

    @cached_property
    def pristine(self) -> tuple[Pristine, Pristine]:
        """Of the agent's side, and of the user's."""
        agent = _validated(read_json(self.folder / "db.json"))
        user = _validated_user(read_json(self.folder / "user_db.json"))
        return Pristine(agent), Pristine(user)

    def open(self, *, solo: bool) -> World:
        agent, user = self.pristine
        return World(
            MockTools(Tables("MockDB", agent, _validated)),
            MockUserTools(Tables("MockUserDB", user, _validated_user)),
            self.text("policy_solo.md" if solo else "policy.md"),
            solo=solo,
        )


def _validated(data: Json) -> Json:
    return dumped(built(MockDB, data))


def _validated_user(data: Json) -> Json:
    return dumped(built(MockUserDB, data))


class MockTools(Toolkit):
    """What the agent can do."""

    title = "MockTools"

    @tool("write")
    def create_task(self, user_id: str, title: str, description: str | None = None) -> Any:
        """Create a task for a user.

        Args:
            user_id: The user, such as "user_1".
            title: What the task is called.
            description: What it is about.
        """
        if user_id not in self.db.users:
            raise ValueError(f"User {user_id} not found")
        task_id = f"task_{len(self.db.tasks) + 1}"
        data = {"task_id": task_id, "title": title, "description": description, "status": "pending"}
        task = dumped(built(Task, data))
        self.db.tasks.put(task_id, task)
        self.db.users.edit(user_id)["tasks"].append(task_id)
        return Record(task)

    @tool("read")
    def get_users(self) -> Any:
        """All users."""
        return [Record(user) for user in self.db.users.values()]

    @tool("write")
    def update_task_status(self, task_id: str, status: Status) -> Any:
        """Say whether a task is completed.

        Args:
            task_id: The task, such as "task_1".
            status: What it is now.
        """
        self._task(task_id)
        task: Json = self.db.tasks.edit(task_id)
        task["status"] = status
        return Record(task)

    @tool("generic")
    def transfer_to_human_agents(self, summary: str) -> Any:
        """Hand the user over to a human: when asked to, or when policy and tools do not allow to help.

        Args:
            summary: What the user needs, in short.
        """
        return "Transfer successful"

    def assert_number_of_tasks(self, user_id: str, expected_number: int) -> bool:
        """For tasks: whether a user has that many."""
        if user_id not in self.db.users:
            raise ValueError(f"User {user_id} not found")
        return len(self.db.users[user_id]["tasks"]) == expected_number

    def assert_task_status(self, task_id: str, expected_status: str) -> bool:
        """For tasks: whether one has that status."""
        return bool(self._task(task_id)["status"] == expected_status)

    def _task(self, task_id: str) -> Json:
        if task_id not in self.db.tasks:
            raise ValueError(f"Task {task_id} not found")
        task: Json = self.db.tasks[task_id]
        return task


class MockUserTools(Toolkit):
    """What the user can do."""

    title = "MockUserTools"

    @tool("read")
    def check_notifications(self) -> Any:
        """All your notifications."""
        return [Record(notification) for notification in self.db.notifications.values()]

    @tool("write")
    def dismiss_notification(self, notification_id: str) -> Any:
        """Mark a notification as read.

        Args:
            notification_id: The notification, such as "notif_1".
        """
        self._notification(notification_id)
        self.db.notifications.edit(notification_id)["status"] = "read"
        return f"Notification {notification_id} dismissed"

    def add_notification(self, notification_id: str, message: str, task_id: str | None = None) -> None:
        """For tasks: put an unread notification there, in place of one with the same id."""
        data = {"notification_id": notification_id, "message": message, "task_id": task_id}
        self.db.notifications.put(notification_id, dumped(built(Notification, data)))

    def assert_notification_status(self, notification_id: str, expected_status: str) -> bool:
        """For tasks: whether a notification has that status."""
        return bool(self._notification(notification_id)["status"] == expected_status)

    def _notification(self, notification_id: str) -> Json:
        if notification_id not in self.db.notifications:
            raise ValueError(f"Notification {notification_id} not found")
        notification: Json = self.db.notifications[notification_id]
        return notification
