"""Sections where a person deals with the town's office: a contact form, an account behind a login, an inbox."""

from __future__ import annotations

import random
import secrets

from browser_look import escape
from browser_names import email, people, person, phone
from browser_site import (
    Assignment,
    Reply,
    Request,
    Section,
    Unknown,
    choice,
    error,
    field_of,
    form,
    notice,
    step,
    table,
    tick,
)

_TOPICS = ("Roads", "Schools", "Waste", "Parks", "Permits")
_FIELDS = {"name": "Your name", "email": "E-mail", "topic": "Topic", "text": "Message"}
_MATTERS = (
    "The street lamp on Mill Lane is broken",
    "When does the library open on Sunday?",
    "Please empty the bins near the station",
    "I would like to rent a garden plot",
)


class Contact(Section):
    """A form to write to the office."""

    name = "contact"
    title = "Contact us"
    about = "Write to the town office"

    def __init__(self, chance: random.Random) -> None:
        self.state: list[dict[str, object]] = []
        sender = person(chance)
        self._wanted = {
            "name": sender,
            "email": email(sender),
            "topic": chance.choice(_TOPICS),
            "text": chance.choice(_MATTERS),
            "copy": chance.random() < 0.5,
        }

    def get(self, request: Request) -> Reply:
        if request.path == "thanks":
            return Reply(notice("Thank you, we have got your message."))
        if request.path:
            raise Unknown
        return Reply(self._form(request))

    def post(self, request: Request) -> Reply:
        if request.path:
            raise Unknown
        sent = {name: request.text(name) for name in _FIELDS}
        missing = [label for name, label in _FIELDS.items() if not sent[name]]
        if missing:
            return Reply(error(f"Please fill in: {', '.join(missing)}") + self._form(request), 400)
        if "@" not in sent["email"] or sent["topic"] not in _TOPICS:
            return Reply(error("The e-mail address or the topic is not valid") + self._form(request), 400)
        self.state.append({**sent, "copy": "copy" in request.form})
        return Reply(location="/contact/thanks")

    def _form(self, request: Request) -> str:
        """With what was written into it before."""
        text = f'<textarea name="text" rows="5">{escape(request.text("text"))}</textarea>'
        content = (
            field_of(_FIELDS["name"], "name", value=request.text("name"))
            + field_of(_FIELDS["email"], "email", value=request.text("email"))
            + choice(_FIELDS["topic"], "topic", _TOPICS, request.text("topic"))
            + f"<label>{_FIELDS['text']} {text}</label>"
            + tick("Send me a copy", "copy", is_on="copy" in request.form)
        )
        return form("/contact", content, "Send message")

    def assignment(self) -> Assignment:
        wanted = self._wanted
        copy = "Ask for a copy." if wanted["copy"] else "Do not ask for a copy."
        return Assignment(
            f"Send a message with the contact form. Name: {wanted['name']}. E-mail: {wanted['email']}. "
            f"Topic: {wanted['topic']}. Message: '{wanted['text']}' {copy}",
            [wanted],
            [
                step("goto", url="/contact"),
                step("type", selector="input[name=name]", text=wanted["name"]),
                step("type", selector="input[name=email]", text=wanted["email"]),
                step("select", selector="select[name=topic]", option=wanted["topic"]),
                step("type", selector="textarea", text=wanted["text"]),
                *([step("click", selector="input[name=copy]")] if wanted["copy"] else []),
                step("click", text="Send message"),
            ],
        )


class Account(Section):
    """A login, and an account behind it."""

    name = "account"
    title = "My account"
    about = "Your phone number and newsletter"

    def __init__(self, chance: random.Random) -> None:
        self._user = person(chance).lower().replace(" ", ".")
        self._password = f"{chance.choice(('lake', 'pine', 'stone'))}-{chance.randrange(1000, 10_000)}"
        self.state = {"phone": phone(chance), "newsletter": chance.random() < 0.5}
        self._new_phone = phone(chance)
        self._sessions: set[str] = set()

    def get(self, request: Request) -> Reply:
        if request.path not in ("", "saved"):
            raise Unknown
        if not self._is_known(request):
            return Reply(self._login(""))
        return Reply((notice("Your changes were saved.") if request.path else "") + self._details())

    def post(self, request: Request) -> Reply:
        if request.path == "login":
            right = (request.text("user"), request.text("password")) == (self._user, self._password)
            if not right:
                return Reply(self._login("User name or password is wrong"), 400)
            session = secrets.token_hex(16)
            self._sessions.add(session)
            return Reply(location="/account", cookie=f"session={session}")
        if request.path != "save":
            raise Unknown
        if not self._is_known(request):
            return Reply(self._login("Please sign in first"), 403)
        if not request.text("phone"):
            return Reply(error("A phone number is needed") + self._details(), 400)
        self.state = {"phone": request.text("phone"), "newsletter": "newsletter" in request.form}
        return Reply(location="/account/saved")

    def _is_known(self, request: Request) -> bool:
        return request.cookies.get("session", "") in self._sessions

    def _details(self) -> str:
        content = field_of("Phone", "phone", value=str(self.state["phone"]))
        content += tick("Newsletter", "newsletter", is_on=bool(self.state["newsletter"]))
        return f"<p>Signed in as {escape(self._user)}</p>" + form("/account/save", content, "Save")

    def _login(self, problem: str) -> str:
        content = field_of("User name", "user") + field_of("Password", "password", "password")
        return (error(problem) if problem else "") + form("/account/login", content, "Sign in")

    def assignment(self) -> Assignment:
        news = not self.state["newsletter"]
        return Assignment(
            f"Sign in to 'My account' as {self._user} with the password {self._password}. Change the phone number "
            f"to {self._new_phone} and {'subscribe to' if news else 'unsubscribe from'} the newsletter; save it.",
            {"phone": self._new_phone, "newsletter": news},
            [
                step("goto", url="/account"),
                step("type", selector="input[name=user]", text=self._user),
                step("type", selector="input[name=password]", text=self._password, submit=True),
                step("type", selector="input[name=phone]", text=self._new_phone),
                step("click", text="Newsletter"),
                step("click", text="Save"),
            ],
        )


class Inbox(Section):
    """Messages that can be selected and deleted."""

    name = "inbox"
    title = "Inbox"
    about = "Messages that you have got"

    def __init__(self, chance: random.Random) -> None:
        senders = people(chance, 4)
        subjects = ("Invoice", "Meeting", "Photos", "Reminder", "Greetings", "Question")
        self._messages = {
            f"m{number}": (chance.choice(senders), f"{chance.choice(subjects)} {chance.randrange(100, 1000)}")
            for number in range(1, 13)
        }
        self._unwanted = self._messages[f"m{chance.randrange(1, 13)}"][0]
        self.state = list(self._messages)

    def get(self, request: Request) -> Reply:
        if request.path:
            raise Unknown
        rows = [
            (
                f'<input type="checkbox" name="id" value="{id}" '
                f'aria-label="Select {escape(self._messages[id][1])}">',
                escape(self._messages[id][0]),
                escape(self._messages[id][1]),
            )
            for id in self.state
        ]
        return Reply(form("/inbox/delete", table(("Select", "From", "Subject"), rows), "Delete selected"))

    def post(self, request: Request) -> Reply:
        if request.path != "delete":
            raise Unknown
        gone = set(request.form.get("id", []))
        self.state = [id for id in self.state if id not in gone]
        return Reply(location="/inbox")

    def assignment(self) -> Assignment:
        gone = [id for id, (sender, _) in self._messages.items() if sender == self._unwanted]
        return Assignment(
            f"In the inbox, delete every message from {self._unwanted}, and no other.",
            [id for id in self._messages if id not in gone],
            [
                step("goto", url="/inbox"),
                *(step("click", selector=f"input[value={id}]") for id in gone),
                step("click", text="Delete selected"),
            ],
        )
