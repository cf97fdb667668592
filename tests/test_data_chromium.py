"""`aenv data pull browser`: Chromium of the host's Debian, fetched by apt-get into a folder of ours."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from aenv.artifacts.data import chromium, manifests
from aenv.artifacts.data.pull import pull
from aenv.base.errors import NetworkError, Unsupported

SIZE = 2048
# Answers as apt-get and dpkg-deb do, and writes down how it was called.
APT = """#!/bin/sh
echo "$*" >> {log}
case "$*" in
  update*) cp -r "$(sed -n 's/^Dir::Etc::parts "\\(.*\\)";/\\1/p' "$APT_CONFIG")" {seen} ;;
  *install*)
    for package in chromium_9%3a1.0-1 libnice_2.0 libc6_2.36 fonts-dejavu-core_2.37 perl_5 libllvm15_15; do
      echo "'http://host.invalid/$package.deb' ${{package}}_amd64.deb {size} MD5Sum:0"
    done ;;
  download*)
    shift 2
    for package in "$@"; do
      name=$(echo "$package" | sed 's/=/_/; s/:/%3a/')_amd64.deb
      head -c {size} /dev/zero > "$name"
    done ;;
esac
"""
DPKG = """#!/bin/sh
case "$2" in
  */chromium_9*)
    mkdir -p "$3/usr/lib/chromium" "$3/usr/share/doc"
    echo program > "$3/usr/lib/chromium/chromium"; chmod 4755 "$3/usr/lib/chromium/chromium"
    ln -s /etc/passwd "$3/usr/lib/chromium/out"; ln -s out "$3/usr/lib/chromium/further"
    ln -s chromium "$3/usr/lib/chromium/chrome" ;;
  */fonts-dejavu*) mkdir -p "$3/usr/share/fonts"; echo font > "$3/usr/share/fonts/f.ttf" ;;
  */libnice_*) mkdir -p "$3/usr/lib/any-linux-gnu"; echo library > "$3/usr/lib/any-linux-gnu/libnice.so" ;;
  *) exit 2 ;;
esac
"""


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for apt-get, which alone is on the path; gives the list of its calls."""
    programs, log = tmp_path / "programs", tmp_path / "calls"
    programs.mkdir()
    told = APT.format(log=log, seen=tmp_path / "seen", size=SIZE)
    for name, text in (("apt-get", told), ("dpkg-deb", DPKG)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return log


def fetch(home: Path, **options: bool) -> manifests.Manifest:
    return pull("browser", home, lambda *_: nullcontext(lambda done: None), **options)


def test_what_chromium_needs_is_laid_out_with_a_manifest_and_nothing_leads_out(tmp_path: Path, apt: Path) -> None:
    manifest = fetch(tmp_path)
    folder = tmp_path / "data" / "browser"
    found = {entry.path: entry for entry in manifest.files}
    assert manifest.revision == "9:1.0-1"
    assert sorted(found) == [
        *("fonts.conf", "usr/lib/any-linux-gnu/libnice.so", "usr/lib/chromium/chrome"),
        *("usr/lib/chromium/chromium", "usr/share/fonts/f.ttf"),
    ]
    assert (folder / "usr/lib/chromium/chromium").stat().st_mode & 0o7777 == 0o755  # and not setuid
    assert manifests.parse((folder / manifests.NAME).read_bytes(), "it") == manifest
    assert [path.name for path in (tmp_path / "data").iterdir() if "partial" in path.name] == []


def test_apt_get_uses_folders_of_ours_and_runs_none_of_the_host_s_hooks(tmp_path: Path, apt: Path) -> None:
    fetch(tmp_path)
    said = (tmp_path / "seen" / "99aenv.conf").read_text()
    for line in ("#clear APT::Update::Post-Invoke;", f'Dir::State "{tmp_path}/data/.browser.partial/state";'):
        assert line in said
    calls = apt.read_text().splitlines()
    assert calls[0] == "update -q"
    assert calls[2:] == ["download -q chromium=9:1.0-1 libnice=2.0 fonts-dejavu-core=2.37"]


def test_a_pull_that_broke_off_fetches_only_what_is_missing(tmp_path: Path, apt: Path) -> None:
    work = tmp_path / "data" / ".browser.partial"
    archive = chromium.Archive(work)
    archive.fetch(archive.plan()[:1], lambda done: None)
    shown: list[int] = []
    archive.fetch(archive.plan(), shown.append)
    assert apt.read_text().splitlines()[-1] == "download -q libnice=2.0 fonts-dejavu-core=2.37"
    assert shown == [SIZE, 3 * SIZE]


def test_what_apt_get_complains_about_is_said(tmp_path: Path, apt: Path) -> None:
    (apt.parent / "programs" / "apt-get").write_text(
        "#!/bin/sh\necho 'E: no route to the archive' >&2; exit 100\n"
    )
    with pytest.raises(NetworkError, match=r"apt-get update failed: E: no route to the archive"):
        fetch(tmp_path)
    assert not (tmp_path / "data" / "browser").exists()


def test_where_there_is_no_apt_get_or_no_chromium_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unsupported, match="the archives of this host have no package 'chromium'"):
        chromium.needed("'http://host.invalid/x' libnice_2.0_amd64.deb 12 MD5Sum:0\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("apt-get") is None
    with pytest.raises(Unsupported, match=r"apt-get, which this host does not have; .* --from DIR"):
        fetch(tmp_path)
