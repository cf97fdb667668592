"""How the site looks: the frame of every page, and its style. All of it is in the page: nothing else is loaded."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import NamedTuple

_STYLE = """
*{box-sizing:border-box}
body{margin:0;background:#f3f5f2;color:#1f2a26;font:16px/1.5 "Helvetica Neue",Arial,"Liberation Sans",sans-serif}
a{color:#1c5f8a}a:hover{color:#0d3b59}
header{background:#1d4d43;color:#fff}
.bar,main,footer{max-width:68rem;margin:0 auto;padding:0 1.5rem}
.bar{display:flex;flex-wrap:wrap;align-items:center;gap:.4rem 1.3rem;min-height:4rem}
.bar a{color:#dcebe5;text-decoration:none;font-size:.95rem}.bar a:hover{color:#fff;text-decoration:underline}
.bar a.brand{color:#fff;font-size:1.3rem;font-weight:700;margin-right:auto}
.bar a[aria-current]{color:#fff;font-weight:700}
main{padding-top:1.6rem;padding-bottom:2.5rem}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 1rem}h2{font-size:1.25rem;margin:0 0 .8rem}
.paper{background:#fff;border:1px solid #dbe2dd;border-radius:10px;padding:1.5rem 1.7rem}
.paper>:first-child{margin-top:0}.paper>:last-child{margin-bottom:0}
.lead{font-size:1.1rem;color:#46564f;margin:0 0 1.4rem}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(14rem,1fr));gap:1rem;
list-style:none;margin:0;padding:0}
.cards a{display:block;height:100%;padding:1.1rem 1.2rem;background:#fff;border:1px solid #dbe2dd;
border-radius:10px;border-top:4px solid #2f7d6b;color:inherit;text-decoration:none}
.cards a:hover{border-color:#2f7d6b}
.cards strong{display:block;font-size:1.1rem;color:#1d4d43}.cards span{color:#5a6a63}
table{width:100%;border-collapse:collapse;margin:1rem 0}
th,td{padding:.45rem .7rem;text-align:left;border-bottom:1px solid #e2e8e4}
th{font-size:.85rem;color:#5a6a63;border-bottom:2px solid #c9d4ce}tbody tr:hover{background:#f6f9f7}
label{display:block;max-width:32rem;margin:0 0 .9rem;font-weight:600}
input,select,textarea{display:block;width:100%;margin-top:.25rem;padding:.5rem .6rem;font:inherit;font-weight:400;
color:inherit;background:#fff;border:1px solid #9fb0a8;border-radius:6px}
input[type=checkbox],input[type=radio]{display:inline-block;width:1.1rem;height:1.1rem;margin:0 .4rem 0 0;
vertical-align:-.15rem}
label.tick{font-weight:400}input:focus,select:focus,textarea:focus{outline:3px solid #9fd0c2;border-color:#2f7d6b}
button{padding:.5rem 1.1rem;font:inherit;font-weight:600;color:#fff;background:#2f7d6b;border:0;border-radius:6px;
cursor:pointer}
button:hover{background:#24665a}button:disabled{background:#a9b8b1;cursor:default}
button.plain{color:#1d4d43;background:#e3ece7}button.plain:hover{background:#d2dfd8}
fieldset{max-width:32rem;margin:0 0 1rem;padding:.9rem 1.1rem .1rem;border:1px solid #c9d4ce;border-radius:8px}
legend{padding:0 .4rem;font-weight:600}form{margin:0 0 1rem}
.error,.notice{padding:.7rem 1rem;border-radius:6px;margin:0 0 1.2rem}
.error{color:#8a1c1c;background:#fdecec;border-left:4px solid #c53030}
.notice{color:#1d4d2f;background:#e8f6ec;border-left:4px solid #2f8f4e}
.side{display:grid;grid-template-columns:1fr 1fr;gap:0 2rem;align-items:start}
.works{list-style:none;margin:0 0 1rem;padding:0}
.works li{display:flex;justify-content:space-between;align-items:center;gap:1rem;padding:.5rem 0;
border-bottom:1px solid #e2e8e4}
.works li.done span{color:#7a8a83;text-decoration:line-through}
footer{padding-bottom:2rem;color:#5a6a63;font-size:.9rem}
"""


class Link(NamedTuple):
    """A section, as others lead to it."""

    title: str
    about: str


def page(title: str, body: str, links: Mapping[str, Link], here: str = "") -> str:
    """A whole page; `body` is HTML, `here` the section that it is of."""
    ways = "".join(
        f'<a href="/{name}"{" aria-current=page" if name == here else ""}>{escape(link.title)}</a>'
        for name, link in links.items()
    )
    return _framed(title, ways, f'<div class="paper">{body}</div>')


def home(links: Mapping[str, Link]) -> str:
    """The first page: a card for each section. They are in no other place, so that each text is there once."""
    cards = "".join(
        f'<li><a href="/{name}"><strong>{escape(link.title)}</strong><span>{escape(link.about)}</span></a></li>'
        for name, link in links.items()
    )
    body = f'<p class="lead">What would you like to do?</p><ul class="cards">{cards}</ul>'
    return _framed("Welcome to Larkspur", "", body)


def escape(text: object) -> str:
    """As it stands in HTML, attributes included."""
    return html.escape(str(text))


def _framed(title: str, ways: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)} - Larkspur</title>'
        f'<link rel="icon" href="data:,"><style>{_STYLE}</style></head><body>'
        f'<header><nav class="bar"><a class="brand" href="/">Larkspur</a>{ways}</nav></header>'
        f"<main><h1>{escape(title)}</h1>{body}</main><footer>Town of Larkspur</footer></body></html>"
    )
