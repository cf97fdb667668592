"""Sections where something has to be found: a directory over many pages, and a board that a script fills."""

from __future__ import annotations

import json
import random
from urllib.parse import quote

from browser_look import escape
from browser_names import FIRST, LAST, people
from browser_site import (
    Assignment,
    Reply,
    Request,
    Section,
    Unknown,
    error,
    field_of,
    form,
    notice,
    step,
    table,
    whole,
)

_PER_PAGE = 20
_DEPARTMENTS = ("Finance", "Gardens", "Library", "Planning", "Transport")
_VERBS = ("Repair", "Paint", "Order", "Check", "Clean", "Count", "Move")
_THINGS = ("the fountain", "the benches", "new bulbs", "the gate", "the archive", "the notice board", "old signs")
_BATCH = 8
_BOARD = """
<ul id="items" class="works"></ul><button id="more">Load more</button>
<script>
const list = document.getElementById("items"), more = document.getElementById("more");
async function load() {
  more.disabled = true;
  const got = await (await fetch("/board/items?from=" + list.children.length)).json();
  for (const item of got.items) {
    const line = document.createElement("li"), button = document.createElement("button");
    const text = document.createElement("span");
    text.textContent = item.text;
    line.append(text);
    const show = () => {
      line.className = item.done ? "done" : "";
      button.textContent = item.done ? "Reopen" : "Done";
      button.className = item.done ? "plain" : "";
      button.setAttribute("aria-label", button.textContent + ": " + item.text);
    };
    show();
    button.onclick = async () => {
      const body = new URLSearchParams({id: item.id, done: item.done ? "" : "1"});
      await fetch("/board/set", {method: "POST", body});
      item.done = !item.done;
      show();
    };
    line.append(button);
    list.append(line);
  }
  more.disabled = false;
  more.hidden = !got.more;
}
more.onclick = load;
load();
</script>
"""


class Directory(Section):
    """Who works where: many people, some of the same name. The answer to a question is sent once."""

    name = "directory"
    title = "Staff directory"
    about = "Who works where, and their extensions"

    def __init__(self, chance: random.Random) -> None:
        names = [f"{chance.choice(FIRST)} {chance.choice(LAST)}" for _ in range(116)]
        numbers = chance.sample(range(1000, 10_000), 120)
        twin = people(chance, 1)[0]
        homes = chance.sample(_DEPARTMENTS, 4)
        rows = [(name, chance.choice(_DEPARTMENTS)) for name in names if name != twin]
        rows += [(twin, home) for home in homes]  # a name alone does not tell
        chance.shuffle(rows)
        self._rows = [(name, home, str(number)) for (name, home), number in zip(rows, numbers, strict=False)]
        self._asked = (twin, homes[0])
        self.state: list[str] = []

    def get(self, request: Request) -> Reply:
        if request.path == "answered":
            return Reply(notice("Your answer was recorded."))
        if request.path:
            raise Unknown
        return Reply(self._list(request.query.get("q", ""), whole(request.query.get("page", "")) or 0))

    def post(self, request: Request) -> Reply:
        if request.path != "answer":
            raise Unknown
        if not request.text("extension"):
            return Reply(error("Write an extension") + self._list("", 0), 400)
        self.state.append(request.text("extension"))
        return Reply(location="/directory/answered")

    def _list(self, sought: str, asked: int) -> str:
        rows = [row for row in self._rows if sought.lower() in row[0].lower()]
        last = max((len(rows) - 1) // _PER_PAGE, 0)
        page = min(asked, last)
        shown = [[escape(cell) for cell in row] for row in rows[page * _PER_PAGE : (page + 1) * _PER_PAGE]]
        head = ("Name", "Department", "Extension")
        return self._search(sought) + table(head, shown) + _turn(sought, page, last)

    def _search(self, sought: str) -> str:
        search = (
            f'<form action="/directory"><label>Search by name <input name="q" value="{escape(sought)}"></label>'
            "<button>Search</button></form>"
        )
        answer = form("/directory/answer", field_of("Extension asked for", "extension"), "Submit answer", "plain")
        return f'<div class="side">{search}{answer}</div>'

    def assignment(self) -> Assignment:
        name, home = self._asked
        extension = next(number for who, where, number in self._rows if (who, where) == (name, home))
        return Assignment(
            f"Find the extension of {name} who works in {home} in the staff directory, and submit it there. "
            "Only the first answer counts.",
            [extension],
            [
                step("goto", url="/directory"),
                step("type", selector="input[name=q]", text=name, submit=True),
                step("type", selector="input[name=extension]", text=extension, submit=True),
            ],
        )


class Board(Section):
    """Things to do, loaded by a script, some at a time."""

    name = "board"
    title = "Works board"
    about = "What the town is busy with"

    def __init__(self, chance: random.Random) -> None:
        texts = chance.sample([f"{verb} {thing}" for verb in _VERBS for thing in _THINGS], 24)
        self._texts = {f"w{number}": text for number, text in enumerate(texts)}
        self.state = {id: chance.random() < 0.2 for id in self._texts}
        self._asked = f"w{chance.randrange(2 * _BATCH, 24)}"  # not among the first ones
        self.state[self._asked] = False

    def get(self, request: Request) -> Reply:
        if request.path == "items":
            first = whole(request.query.get("from", "")) or 0
            ids = list(self._texts)[first : first + _BATCH]
            items = [{"id": id, "text": self._texts[id], "done": self.state[id]} for id in ids]
            return Reply(json.dumps({"items": items, "more": first + _BATCH < len(self._texts)}), is_json=True)
        if request.path:
            raise Unknown
        return Reply(_BOARD)

    def post(self, request: Request) -> Reply:
        id = request.text("id")
        if request.path != "set" or id not in self.state:
            raise Unknown
        self.state[id] = bool(request.text("done"))
        return Reply("{}", is_json=True)

    def assignment(self) -> Assignment:
        text = self._texts[self._asked]
        return Assignment(
            f"On the works board, mark '{text}' as done, and change nothing else.",
            {**self.state, self._asked: True},
            [
                step("goto", url="/board"),
                step("click", text="Load more"),
                step("click", text="Load more"),
                step("click", selector=f'button[aria-label="Done: {text}"]'),
            ],
        )


def _turn(sought: str, page: int, last: int) -> str:
    """Links to the pages before and after this one."""
    sides = (("Previous", page - 1), ("Next", page + 1))
    links = (
        f'<a href="/directory?q={quote(sought)}&amp;page={n}">{word}</a>' for word, n in sides if 0 <= n <= last
    )
    return f"<p>Page {page + 1} of {last + 1} {' '.join(links)}</p>"
