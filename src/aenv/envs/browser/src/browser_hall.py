"""Sections of the town hall whose pages open others: a price list in a tab of its own, and dialogs that ask."""

from __future__ import annotations

import random

from browser_look import escape
from browser_names import people, person
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
)

_KINDS = (
    "Market stall",
    "Street music",
    "Bonfire",
    "Parking",
    "Fishing",
    "Garden shed",
    "Film crew",
    "Street party",
)
_PAPERS = (
    "Budget",
    "Bridge repairs",
    "Tree survey",
    "School meals",
    "Harbour rules",
    "Bus lines",
    "Library hours",
)
# The buttons fill in a form. A prompt that is cancelled sends nothing.
_SCRIPT = """<script>
const form = document.forms.change;
function change(id, what, value) {
  form.id.value = id; form.what.value = what; form.value.value = value; form.submit();
}
function rename(id, name) {
  const chosen = prompt("New name of the paper", name);
  if (chosen !== null) change(id, "name", chosen);
}
function publish(id) {
  change(id, "published", confirm("Also send it to every household?") ? "sent" : "quietly");
}
</script>"""


class Permits(Section):
    """A form that wants a fee, which is in a list that opens in another tab."""

    name = "permits"
    title = "Permits"
    about = "Apply for a permit"

    def __init__(self, chance: random.Random) -> None:
        self.state: list[dict[str, str]] = []
        self._fees = {kind: f"{chance.randrange(10, 90)}.{chance.randrange(10, 100)}" for kind in _KINDS}
        self._wanted = {"name": person(chance), "kind": chance.choice(_KINDS)}

    def get(self, request: Request) -> Reply:
        match request.path:
            case "":
                return Reply(self._form(request))
            case "fees":
                rows = [(escape(kind), fee) for kind, fee in self._fees.items()]
                return Reply(f"<h2>Fees</h2>{table(('Permit', 'Fee'), rows)}")
            case "thanks":
                return Reply(notice("Thank you, we have got your application."))
        raise Unknown

    def post(self, request: Request) -> Reply:
        if request.path:
            raise Unknown
        sent = {name: request.text(name) for name in ("name", "kind", "fee")}
        if not all(sent.values()) or sent["kind"] not in _KINDS:
            return Reply(error("Please fill in name, permit and fee") + self._form(request), 400)
        self.state.append(sent)
        return Reply(location="/permits/thanks")

    def _form(self, request: Request) -> str:
        content = (
            field_of("Your name", "name", value=request.text("name"))
            + choice("Permit", "kind", _KINDS, request.text("kind"))
            + field_of("Fee", "fee", value=request.text("fee"))
        )
        link = '<p><a href="/permits/fees" target="_blank">Price list</a> (opens in a new tab)</p>'
        return link + form("/permits", content, "Apply")

    def assignment(self) -> Assignment:
        wanted = {**self._wanted, "fee": self._fees[self._wanted["kind"]]}
        return Assignment(
            f"Apply for a permit. Name: {wanted['name']}. Permit: {wanted['kind']}. The form asks for the fee, "
            "which is in the price list; that opens in a new tab.",
            [wanted],
            [
                step("goto", url="/permits"),
                step("click", text="Price list"),
                step("switch_tab", tab=1),
                step("type", selector="input[name=name]", text=wanted["name"]),
                step("select", selector="select[name=kind]", option=wanted["kind"]),
                step("type", selector="input[name=fee]", text=wanted["fee"]),
                step("click", text="Apply"),
            ],
        )


class Papers(Section):
    """Papers of the council, which dialogs rename and publish."""

    name = "papers"
    title = "Council papers"
    about = "Rename and publish papers of the council"

    def __init__(self, chance: random.Random) -> None:
        names = chance.sample(_PAPERS, 5)
        self.state = {f"p{n}": {"name": name, "published": ""} for n, name in enumerate(names, 1)}
        self._renamed, self._published = chance.sample(sorted(self.state), 2)
        self._new_name = f"{self.state[self._renamed]['name']} of {people(chance, 1)[0]}"
        self._is_sent = chance.random() < 0.5

    def get(self, request: Request) -> Reply:
        if request.path:
            raise Unknown
        shown = {"": "no", "quietly": "yes", "sent": "yes, and sent"}
        rows = [
            (escape(paper["name"]), shown[paper["published"]], self._buttons(id, paper["name"]))
            for id, paper in self.state.items()
        ]
        fields = "".join(f'<input type="hidden" name="{name}">' for name in ("id", "what", "value"))
        change = f'<form name="change" method="post" action="/papers">{fields}</form>'
        return Reply(table(("Paper", "Published", ""), rows) + change + _SCRIPT)

    def post(self, request: Request) -> Reply:
        if request.path:
            raise Unknown
        paper, what, value = self.state.get(request.text("id")), request.text("what"), request.text("value")
        if paper is None or not value or (what, value) not in (("name", value), *_PUBLISHED):
            return Reply(error("This cannot be done"), 400)
        paper[what] = value[:80]
        return Reply(location="/papers")

    def _buttons(self, id: str, name: str) -> str:
        said = escape(name)
        return (
            f'<button onclick="rename(\'{id}\', this.dataset.name)" data-name="{said}" aria-label="Rename {said}">'
            f'Rename</button> <button onclick="publish(\'{id}\')" aria-label="Publish {said}">Publish</button>'
        )

    def assignment(self) -> Assignment:
        goal = {id: dict(paper) for id, paper in self.state.items()}
        old, public = self.state[self._renamed]["name"], self.state[self._published]["name"]
        goal[self._renamed]["name"] = self._new_name
        goal[self._published]["published"] = "sent" if self._is_sent else "quietly"
        how = "and have it sent to every household" if self._is_sent else "without sending it to the households"
        return Assignment(
            f"Among the council papers, rename '{old}' to '{self._new_name}', and publish '{public}', {how}. "
            "The page asks in dialogs.",
            goal,
            [
                step("goto", url="/papers"),
                step("click", selector=f'role=button[name="Rename {old}"]'),
                step("answer_dialog", accept=True, text=self._new_name),
                step("click", selector=f'role=button[name="Publish {public}"]'),
                step("answer_dialog", accept=self._is_sent),
            ],
        )


_PUBLISHED = (("published", "quietly"), ("published", "sent"))
