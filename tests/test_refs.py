"""References to environments: ranges of versions, and the text that sorts as versions do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aenv.base import refs
from aenv.base.errors import InvalidRequest

KNOWN = ["nightly", "0.2.3", "0.2.9", "0.3.0", "1.0", "1.2.0", "1.2.5", "1.9.1", "2.0.0-rc.1", "2.0.0", "3.0.0-a"]
VERSIONS = st.from_regex(r"[a-z0-9](?:[A-Za-z0-9.+_-]{0,12}[A-Za-z0-9])?", fullmatch=True) | st.from_regex(
    r"[0-9]{1,4}(\.[0-9]{1,3}){0,3}(-[a-c0-9]{1,3}(\.[a-c0-9-]{1,3}){0,2})?", fullmatch=True
)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("latest", "2.0.0"),
        ("*", "2.0.0"),
        ("^1.2", "1.9.1"),
        ("^1", "1.9.1"),
        ("^0.2.3", "0.2.9"),
        ("^0.2", "0.2.9"),
        ("^0", "0.3.0"),
        ("^0.0.3", None),
        ("~1.2.0", "1.2.5"),
        ("~1.2", "1.2.5"),
        ("~1", "1.9.1"),
        (">=1.0,<2", "1.9.1"),
        (">= 1.0 , < 1.2.5", None),
        (">=1.0, <1.2.5", "1.2.0"),
        ("<2", "1.9.1"),
        ("<=1.2.0", "1.2.0"),
        (">1.2.5,<2.0.0", "1.9.1"),
        ("=1.2.0", "1.2.0"),
        ("1.x", "1.9.1"),
        ("1.2.x", "1.2.5"),
        ("1.2.*", "1.2.5"),
        ("4.x", None),
        ("nightly", "nightly"),
        ("1.0", "1.0"),
        ("1.0.0", None),
        ("^2.1", None),
        ("^3", None),
        (">2", "3.0.0-a"),
    ],
)
def test_a_range_means_the_latest_version_that_fits(spec, expected):
    assert refs.matching(spec, KNOWN) == expected


def test_a_reference_picks_its_version():
    assert refs.parse("a").pick(KNOWN) == "2.0.0"
    assert refs.parse("a@1.x").pick(KNOWN) == "1.9.1"
    assert refs.parse("a@1.2.0").pick(KNOWN) == "1.2.0"
    assert refs.parse("a@1.2.7").pick(KNOWN) is None


@pytest.mark.parametrize("spec", ["^1.2", "~1.2.0", ">=1.0,<2", "1.x", "*", "<=1.0.0-rc.1"])
def test_a_reference_with_a_range_has_no_version_and_is_printed_as_it_was_written(spec):
    ref = refs.parse(f"a@{spec}")
    assert (ref.version, ref.range, str(ref)) == (None, spec, f"a@{spec}")


@pytest.mark.parametrize("text", ["a@^", "a@>=x", "a@1,2", "a@~1.2.3.4", "a@^1,", "a@^" + "9" * 200, "a@>1 <2"])
def test_what_is_neither_version_nor_range_is_refused(text):
    with pytest.raises(InvalidRequest, match="bad version"):
        refs.parse(text)


@pytest.mark.parametrize("version", ["latest", "^1.2", "1.x", "*", "", "1/2"])
def test_one_version_cannot_be_named_like_a_range(version):
    with pytest.raises(InvalidRequest, match="bad version"):
        refs.exact("a", version)


@pytest.mark.slow
@given(VERSIONS, VERSIONS)
def test_the_place_of_a_version_sorts_as_the_version_does(one, other):
    by_version = (refs.Version(one) < refs.Version(other), refs.Version(one) == refs.Version(other))
    assert by_version == (refs.place(one) < refs.place(other), refs.place(one) == refs.place(other))
