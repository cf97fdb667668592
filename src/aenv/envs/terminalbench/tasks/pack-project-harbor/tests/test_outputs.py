"""aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data"""

import tarfile
from pathlib import Path


def test_what_is_in_the_archive():
    with tarfile.open("/app/project.tar.gz", "r:gz") as archive:
        files = {one.name.removeprefix("./"): one for one in archive if one.isfile()}
        assert sorted(files) == ["project/main.c", "project/src/deep.c"]
        assert archive.extractfile(files["project/src/deep.c"]).read() == b"int deep;\n"


def test_the_project_is_untouched():
    assert Path("/app/project/cache/old").exists()
    assert Path("/app/project/notes.tmp").exists()


if __name__ == "__main__":
    for name, test in [*globals().items()]:
        if name.startswith("test_"):
            test()
            print("PASSED", name)
