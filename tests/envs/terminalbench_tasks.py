"""The ten tasks that ship with terminalbench, from one source: `write` makes both forms of each.

python -m tests.envs.terminalbench_tasks     writes them into the environment's folder
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "src" / "aenv" / "envs" / "terminalbench" / "tasks"
CANARY = "aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data"

_MAIN = """

if __name__ == "__main__":
    for name, test in [*globals().items()]:
        if name.startswith("test_"):
            test()
            print("PASSED", name)
"""


@dataclass(frozen=True)
class Source:
    """One task."""

    name: str
    category: str
    instruction: str
    solution: str
    tests: str
    files: Mapping[str, str] = field(default_factory=dict)
    """What is in /app when it begins."""


SOURCES = (
    Source(
        "greeting",
        "files",
        """
        Make the folder /app/out and in it the file hello.txt with the single line

            Hello, terminal!

        Then make /app/out/notes.txt a copy of /app/notes.txt, and remove /app/notes.txt.
        """,
        """
        mkdir -p /app/out
        echo 'Hello, terminal!' > /app/out/hello.txt
        mv /app/notes.txt /app/out/notes.txt
        """,
        """
        def test_the_greeting():
            assert Path("/app/out/hello.txt").read_text() == "Hello, terminal!\\n"


        def test_the_notes_were_moved():
            assert Path("/app/out/notes.txt").read_text() == "milk\\neggs\\nbread\\n"
            assert not Path("/app/notes.txt").exists()
        """,
        {"notes.txt": "milk\neggs\nbread\n"},
    ),
    Source(
        "top-words",
        "text",
        """
        Count the words of /app/poem.txt. A word is a run of letters; capitals do not matter. Write the three most
        frequent ones to /app/top.txt, the most frequent first, one on a line as "word count", as in "tree 5".
        """,
        """
        tr -cs '[:alpha:]' '\\n' < /app/poem.txt | tr '[:upper:]' '[:lower:]' | grep . | sort | uniq -c \\
            | sort -rn | head -n 3 | awk '{print $2, $1}' > /app/top.txt
        """,
        """
        def test_the_three_most_frequent_words():
            assert Path("/app/top.txt").read_text().split("\\n")[:3] == ["the 7", "wind 4", "hill 3"]
            assert len(Path("/app/top.txt").read_text().split()) == 6
        """,
        {
            "poem.txt": "The wind on the hill,\nthe Wind in the mill;\nno wind tonight,\nthe hill is still.\n"
            "And over the hill the wind-\nswept light.\n"
        },
    ),
    Source(
        "safe-keys",
        "permissions",
        """
        Set the permissions in /app/keys: nobody but their owner may do anything with the files that end in .key,
        which the owner may read and write; everybody may read the .pub files, and only the owner may write them;
        rotate.sh may be read, written and executed by its owner, and by nobody else. Only the owner may enter the
        folder itself.
        """,
        """
        chmod 700 /app/keys /app/keys/rotate.sh
        chmod 600 /app/keys/*.key
        chmod 644 /app/keys/*.pub
        """,
        """
        def mode(path):
            return oct(Path("/app/keys", path).stat().st_mode & 0o777)


        def test_the_keys_are_private():
            assert {mode("main.key"), mode("spare.key")} == {"0o600"}


        def test_the_rest():
            assert (mode("main.pub"), mode("rotate.sh"), mode("")) == ("0o644", "0o700", "0o700")
        """,
        {
            "keys/main.key": "secret\n",
            "keys/spare.key": "secret too\n",
            "keys/main.pub": "public\n",
            "keys/rotate.sh": "#!/bin/sh\necho rotated\n",
        },
    ),
    Source(
        "rename-script",
        "shell",
        """
        Write the script /app/rename.sh. It gets a folder as its argument and renames every file in it (not in the
        folders below) that ends in .jpeg so that it ends in .jpg. Names may have spaces. A file is never
        overwritten: where the new name is taken, the file stays as it is. It then prints how many were renamed.
        """,
        """
        cat > /app/rename.sh <<'END'
        #!/bin/bash
        count=0
        for file in "$1"/*.jpeg; do
            [ -f "$file" ] || continue
            new="${file%.jpeg}.jpg"
            [ -e "$new" ] && continue
            mv "$file" "$new"
            count=$((count + 1))
        done
        echo $count
        END
        chmod +x /app/rename.sh
        """,
        """
        def run(names):
            with tempfile.TemporaryDirectory() as folder:
                for name in names:
                    Path(folder, name).parent.mkdir(exist_ok=True)
                    Path(folder, name).write_text(name)
                words = ["bash", "/app/rename.sh", folder]
                done = subprocess.run(words, capture_output=True, text=True, timeout=20)
                found = sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())
                return done.stdout.strip(), found


        def test_files_are_renamed():
            assert run(["a b.jpeg", "c.jpeg", "d.png"]) == ("2", ["a b.jpg", "c.jpg", "d.png"])


        def test_nothing_is_overwritten_and_folders_are_left_alone():
            assert run(["x.jpeg", "x.jpg", "below/y.jpeg"]) == ("0", ["below/y.jpeg", "x.jpeg", "x.jpg"])
        """,
    ),
    Source(
        "fix-median",
        "python",
        """
        /app/median.py prints the median of the numbers on its standard input, one on a line. It is wrong for some
        inputs. Repair it: for an even count the median is the mean of the two in the middle; empty lines are
        skipped; without any number it prints "none". It prints "3" and not "3.0".
        """,
        """
        cat > /app/median.py <<'END'
        import sys

        numbers = sorted(float(line) for line in sys.stdin if line.strip())
        if not numbers:
            print("none")
        else:
            half = len(numbers) // 2
            middle = numbers[half] if len(numbers) % 2 else (numbers[half - 1] + numbers[half]) / 2
            print(f"{middle:g}")
        END
        """,
        """
        def median(text):
            words = [sys.executable, "-I", "/app/median.py"]
            return subprocess.run(words, input=text, capture_output=True, text=True, timeout=20).stdout.strip()


        def test_odd_and_even_counts():
            assert median("10\\n9\\n2\\n") == "9"
            assert median("4\\n1\\n3\\n2\\n") == "2.5"
            assert median("1\\n5\\n") == "3"


        def test_empty_lines_and_no_numbers():
            assert median("\\n7\\n\\n") == "7"
            assert median("") == "none"
        """,
        {
            "median.py": "import sys\n\nnumbers = sorted(line for line in sys.stdin)\n"
            "print(float(numbers[len(numbers) // 2]))\n"
        },
    ),
    Source(
        "merge-people",
        "json",
        """
        /app/a.json and /app/b.json are lists of people, each with an "id". Write /app/merged.json: the people of
        both, sorted by id. Where both have the same id, their fields are merged, and b wins where they differ.
        """,
        """
        cat > /tmp/merge.py <<'END'
        import json

        people = {}
        for name in ("a", "b"):
            for person in json.load(open(f"/app/{name}.json")):
                people.setdefault(person["id"], {}).update(person)
        json.dump([people[id] for id in sorted(people)], open("/app/merged.json", "w"))
        END
        python3 /tmp/merge.py
        """,
        """
        def test_people_are_merged():
            assert json.loads(Path("/app/merged.json").read_text()) == [
                {"id": 1, "name": "Ada"},
                {"id": 2, "name": "Grace H.", "town": "Arlington", "born": 1906},
                {"id": 10, "name": "Linus"},
            ]
        """,
        {
            "a.json": json.dumps([{"id": 10, "name": "Linus"}, {"id": 2, "name": "Grace", "town": "Arlington"}])
            + "\n",
            "b.json": json.dumps([{"id": 2, "name": "Grace H.", "born": 1906}, {"id": 1, "name": "Ada"}]) + "\n",
        },
    ),
    Source(
        "pack-project",
        "archives",
        """
        Pack /app/project into the archive /app/project.tar.gz, so that every path in it begins with project/.
        Leave out files that end in .tmp and the folder project/cache. /app/project itself stays as it is.
        """,
        """
        tar -C /app --exclude='*.tmp' --exclude=project/cache -czf /app/project.tar.gz project
        """,
        """
        def test_what_is_in_the_archive():
            with tarfile.open("/app/project.tar.gz", "r:gz") as archive:
                files = {one.name.removeprefix("./"): one for one in archive if one.isfile()}
                assert sorted(files) == ["project/main.c", "project/src/deep.c"]
                assert archive.extractfile(files["project/src/deep.c"]).read() == b"int deep;\\n"


        def test_the_project_is_untouched():
            assert Path("/app/project/cache/old").exists()
            assert Path("/app/project/notes.tmp").exists()
        """,
        {
            "project/main.c": "int main;\n",
            "project/src/deep.c": "int deep;\n",
            "project/notes.tmp": "scratch\n",
            "project/cache/old": "old\n",
        },
    ),
    Source(
        "failing-paths",
        "logs",
        """
        /app/access.log has one request on a line: time, method, path, status, milliseconds. Write /app/failing.csv
        with the header path,count and a line for each path that was answered with a status of 500 or more: the
        path and how often. The path with the most comes first; paths with the same count in alphabetical order.
        """,
        """
        { echo path,count
          awk '$4 >= 500 {n[$3]++} END {for (path in n) print n[path], path}' /app/access.log \\
              | LC_ALL=C sort -k1,1nr -k2,2 | awk '{print $2 "," $1}'
        } > /app/failing.csv
        """,
        """
        def test_the_table():
            lines = Path("/app/failing.csv").read_text().split()
            assert lines == ["path,count", "/pay,3", "/cart,1", "/search,1"]
        """,
        {
            "access.log": "".join(
                f"12:00:{second:02} {method} {path} {status} {milliseconds}\n"
                for second, (method, path, status, milliseconds) in enumerate(
                    (
                        ("GET", "/", 200, 3),
                        ("POST", "/pay", 502, 900),
                        ("GET", "/search", 503, 500),
                        ("POST", "/pay", 500, 12),
                        ("GET", "/cart", 404, 5),
                        ("GET", "/cart", 500, 7),
                        ("POST", "/pay", 504, 3000),
                        ("GET", "/500", 200, 501),
                    )
                )
            )
        },
    ),
    Source(
        "keep-running",
        "processes",
        """
        Write /app/service.sh, which takes one word. "start" starts "sleep 1000" in the background, writes its
        process id to /app/service.pid, and prints "started"; when it runs already, it prints "running" and starts
        nothing. "status" prints "running" or "stopped". "stop" ends the process, removes /app/service.pid, and
        prints "stopped". A pid file whose process is gone counts as stopped.
        """,
        """
        cat > /app/service.sh <<'END'
        #!/bin/bash
        file=/app/service.pid
        runs() { [ -f $file ] && kill -0 "$(cat $file)" 2>/dev/null; }
        case $1 in
        start)
            if runs; then echo running; exit; fi
            sleep 1000 >/dev/null 2>&1 &
            echo $! > $file
            echo started ;;
        status) if runs; then echo running; else echo stopped; fi ;;
        stop)
            if runs; then kill "$(cat $file)"; fi
            rm -f $file
            echo stopped ;;
        esac
        END
        chmod +x /app/service.sh
        """,
        """
        def service(word):
            words = ["bash", "/app/service.sh", word]
            return subprocess.run(words, capture_output=True, text=True, timeout=20).stdout.strip()


        def test_it_starts_once_and_stops():
            try:
                assert [service("status"), service("start"), service("start")] == ["stopped", "started", "running"]
                pid = Path("/app/service.pid").read_text().strip()
                assert Path("/proc", pid, "cmdline").read_bytes().split(b"\\0")[:2] == [b"sleep", b"1000"]
            finally:
                assert service("stop") == "stopped"
            assert not Path("/app/service.pid").exists()
            assert service("status") == "stopped"


        def test_a_process_that_is_gone_counts_as_stopped():
            Path("/app/service.pid").write_text("4194303")
            assert service("status") == "stopped"
            Path("/app/service.pid").unlink()
        """,
    ),
    Source(
        "settings-file",
        "configuration",
        """
        Turn /app/settings.ini into /app/settings.env: a line SECTION_KEY=value for each setting, with section and
        key in capitals and dashes as underscores. Comments (lines that begin with ; or #) and empty lines are left
        out; spaces around keys and values too. The lines stay in their order.
        """,
        """
        awk '
            /^[[:space:]]*([;#]|$)/ { next }
            /^\\[/ { gsub(/[][ ]/, ""); section = $0; next }
            {
                at = index($0, "="); key = substr($0, 1, at - 1); value = substr($0, at + 1)
                gsub(/^[ \\t]+|[ \\t]+$/, "", key); gsub(/^[ \\t]+|[ \\t]+$/, "", value)
                name = toupper(section "_" key); gsub(/-/, "_", name)
                print name "=" value
            }' /app/settings.ini > /app/settings.env
        """,
        """
        def test_the_settings():
            assert Path("/app/settings.env").read_text().splitlines() == [
                "SERVER_HOST=0.0.0.0",
                "SERVER_MAX_CLIENTS=64",
                "DATA_BASE_URL=sqlite:///x?mode=ro",
                "DATA_BASE_USER=app user",
            ]
        """,
        {
            "settings.ini": "; made by hand\n[server]\nhost = 0.0.0.0\nmax-clients=64\n\n# below: data\n"
            "[data-base]\nurl = sqlite:///x?mode=ro\n  user =  app user  \n"
        },
    ),
)


def write(folder: Path) -> None:
    """Write all tasks in both forms."""
    for source in SOURCES:
        for name, text in (*_version_1(source), *_harbor(source)):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755 if name.endswith(("solution.sh", "solve.sh", "test.sh", "run-tests.sh")) else 0o644)


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def _version_1(source: Source) -> list[tuple[str, str]]:
    instruction = textwrap.indent(_dedented(source.instruction), "  ")
    said = (
        f"# {CANARY}\ninstruction: |-\n{instruction}difficulty: easy\ncategory: {source.category}\ntags:\n"
        f"  - {source.category}\nparser_name: pytest\nmax_agent_timeout_sec: 300.0\nmax_test_timeout_sec: 60.0\n"
        "run_tests_in_same_shell: false\n"
    )
    compose = (
        "services:\n  client:\n    build:\n      dockerfile: Dockerfile\n    command: [sh, -c, sleep infinity]\n"
    )
    run_tests = "#!/bin/bash\npython3 -m pytest $TEST_DIR/test_outputs.py -rA\n"
    files = [
        ("task.yaml", said),
        ("Dockerfile", _dockerfile(source)),
        ("docker-compose.yaml", f"# {CANARY}\n{compose}"),
        ("solution.sh", _script(source.solution)),
        ("run-tests.sh", run_tests),
        ("tests/test_outputs.py", _tests(source)),
        *((f"app/{name}", text) for name, text in source.files.items()),
    ]
    return [(f"{source.name}/{name}", text) for name, text in files]


def _harbor(source: Source) -> list[tuple[str, str]]:
    said = (
        f'# {CANARY}\nversion = "1.0"\n\n[metadata]\ndifficulty = "easy"\ncategory = "{source.category}"\n'
        f'tags = ["{source.category}"]\n\n[verifier]\ntimeout_sec = 60.0\n\n[agent]\ntimeout_sec = 300.0\n\n'
        "[environment]\nbuild_timeout_sec = 600.0\ncpus = 1\n"
    )
    test = (
        f"#!/bin/bash\n# {CANARY}\nmkdir -p /logs/verifier\n"
        "if python3 -I -B /tests/test_outputs.py; then\n    echo 1 > /logs/verifier/reward.txt\n"
        "else\n    echo 0 > /logs/verifier/reward.txt\nfi\n"
    )
    files = [
        ("task.toml", said),
        ("instruction.md", f"{_dedented(source.instruction)}\n<!-- {CANARY} -->\n"),
        ("environment/Dockerfile", _dockerfile(source)),
        ("solution/solve.sh", _script(source.solution)),
        ("tests/test.sh", test),
        ("tests/test_outputs.py", _tests(source)),
        *((f"environment/app/{name}", text) for name, text in source.files.items()),
    ]
    return [(f"{source.name}-harbor/{name}", text) for name, text in files]


def _dockerfile(source: Source) -> str:
    copied = "COPY app/ /app/\n" if source.files else ""
    return f"# {CANARY}\nFROM python:3.13-slim\nWORKDIR /app\n{copied}"


def _script(text: str) -> str:
    return f"#!/bin/bash\n# {CANARY}\nset -e\n{_dedented(text)}"


def _tests(source: Source) -> str:
    body = _dedented(source.tests)
    wanted = [name for name in ("json", "subprocess", "sys", "tarfile", "tempfile") if f"{name}." in body]
    imports = "".join(f"import {name}\n" for name in wanted)
    imports += "from pathlib import Path\n" if "Path(" in body else ""
    return f'"""{CANARY}"""\n\n{imports}\n\n{body.rstrip()}\n{_MAIN}'


def _dedented(text: str) -> str:
    return textwrap.dedent(text).strip() + "\n"


if __name__ == "__main__":
    write(FOLDER)
