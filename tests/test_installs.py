"""Which Python packages a shell script would install, read off its lines."""

from __future__ import annotations

import pytest

from aenv.control.instances.installs import packages


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("uv init\nuv add pytest==8.4.1 pandas\nuv run pytest x.py -rA", ["pytest==8.4.1", "pandas"]),
        ("pip install pytest numpy", ["pytest", "numpy"]),
        ("pip3 install --no-cache-dir -q 'requests>=2' > /dev/null 2>&1", ["requests>=2"]),
        ("python3 -m pip install -i https://x.example/simple torch", ["torch"]),
        ("uv pip install --system pillow[x]~=10.0", ["pillow[x]~=10.0"]),
        ("uvx \\\n  -p 3.13 \\\n  -w pytest==8.4.1 \\\n  --with a,b pytest -w no", ["pytest==8.4.1", "a", "b"]),
        ("uv run --with=httpx==0.28.1 python t.py", ["httpx==0.28.1"]),
        ("if [ -f x ]; then sudo A=1 pip install a; else .venv/bin/pip install b && echo c; fi", ["a", "b"]),
        ("# pip install no\necho pip install no  # pip install no\npip install yes # no", ["yes"]),
        ("pip install . -e ./x git+https://x.example/y /tmp/z.whl $NAME \"$A\" -U ok", ["ok"]),
        ("pip install same\npip install same", ["same"]),
        ("cat > x <<END\nit's no line\nEND\npip install after", ["after"]),
        ("apt-get install -y python3-numpy; pip download no", []),
    ],
)  # fmt: skip
def test_lines_of_pip_and_uv_are_read_and_nothing_else(script: str, found: list[str]) -> None:
    assert packages(script) == found


def test_a_file_of_requirements_is_read_where_it_lies_beside_the_script() -> None:
    files = {"requirements.txt": "numpy==2.0  # for sums\n\n-e .\nscipy\n"}
    assert packages("pip install -r $TEST_DIR/requirements.txt x", files.get) == ["numpy==2.0", "scipy", "x"]
    assert packages("pip install -r /app/other.txt x", files.get) == ["x"]


def test_scripts_that_a_script_runs_are_read_too() -> None:
    files = {"setup.sh": "uv add pytest==8.4.1\nsource setup.sh", "more.sh": "pip install b\nbash setup.sh"}
    assert packages("source $TEST_DIR/setup.sh\nuv add a\nbash ./more.sh\nsh gone.sh", files.get) == [
        *("pytest==8.4.1", "a", "b"),
    ]
