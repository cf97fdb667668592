"""Where records come from: the folder of data, in each of the forms that are about.

    *.jsonl, data/*.jsonl          a record a line
    *.json, data/*.json            a list of records, one record, or records by their ids
    tasks/ID/, ID/                 the public task repository: task.yaml and its companions
    *.parquet, *.arrow             a Hugging Face data set, at any depth; where pyarrow is installed

Not here: what a record means (`swebench_records.py`).
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swebench_records import BadRecord, Record, record_of
from swebench_yaml import YamlError, parse

_PARTS = {
    "problem_statement": "problem_statement.md",
    "hints_text": "hints.md",
    "patch": "gold.patch",
    "test_patch": "test.patch",
    "environment": "environment.yml",
}
# What Hugging Face keeps beside the records, and what we keep there.
_OTHER_JSON = {"dataset_info.json", "dataset_dict.json", "state.json", "index.json", "known_exceptions.json"}
_OWN_FOLDERS = {"git", "sdists", "wheels", "venvs"}
_SHARD = re.compile(r"(?P<split>[A-Za-z0-9_.]+?)-\d{5}-of-\d{5}")


def records(data: Path, id: str = "") -> Iterator[Record]:
    """The records of a folder (or of one file), each id once; with `id` none but that one.

    BadRecord for what cannot be read: a record that is left out silently would not be missed.
    """
    seen = set()
    for where, split, raw in _raws(data, id):
        if not isinstance(raw, dict):
            raise BadRecord(f"{where} is not a record: a JSON object is expected")
        if id and raw.get("instance_id") != id:
            continue
        record = record_of(raw, where, split)
        if record.id not in seen:
            seen.add(record.id)
            yield record
            if id:
                return


def _raws(data: Path, id: str) -> Iterator[tuple[str, str, Any]]:
    if data.is_file():
        yield from _of_file(data, id)
        return
    for folder in _task_folders(data, id):
        yield f"{str(folder)!r}", "", _of_task(folder)
    for file in _files(data):
        yield from _of_file(file, id)


def _task_folders(data: Path, id: str) -> Iterator[Path]:
    for place in (data, data / "tasks"):
        known = sorted(place.iterdir()) if place.is_dir() and not id else []
        found = [place / id] if id else known
        yield from (folder for folder in found if (folder / "task.yaml").is_file())


def _files(data: Path) -> Iterator[Path]:
    for place in (data, data / "data"):
        for file in sorted(place.iterdir()) if place.is_dir() else []:
            if file.suffix == ".jsonl" or (file.suffix == ".json" and file.name not in _OTHER_JSON):
                yield file
    for file in sorted([*data.rglob("*.parquet"), *data.rglob("*.arrow")]):
        if file.relative_to(data).parts[0] not in _OWN_FOLDERS:
            yield file


def _of_file(file: Path, id: str) -> Iterator[tuple[str, str, Any]]:
    split = shard["split"] if (shard := _SHARD.match(file.name)) else ""
    if file.suffix == ".arrow" and (file.parent / "state.json").is_file():
        # As `save_to_disk` writes it: all files are called data-…, and splits are folders, where there are any.
        split = file.parent.name if (file.parent.parent / "dataset_dict.json").is_file() else ""
    match file.suffix:
        case ".jsonl":
            yield from _of_lines(file, id, split)
        case ".parquet" | ".arrow":
            for raw in _of_table(file):
                yield f"{str(file)!r}", split, raw
        case _:
            for raw in _of_json(file):
                yield f"{str(file)!r}", split, raw


def _of_lines(file: Path, id: str, split: str) -> Iterator[tuple[str, str, Any]]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            # Most lines are long and are not the one: look before it is taken apart.
            if not line.strip() or (id and id not in line):
                continue
            where = f"{str(file)!r} line {number}"
            try:
                yield where, split, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise BadRecord(f"{where} is not JSON: {error}") from None


def _of_json(file: Path) -> list[Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"{str(file)!r} is not JSON: {error}") from None
    match content:
        case list():
            return content
        case {"instance_id": _}:
            return [content]
        case dict() if all(isinstance(value, dict) for value in content.values()):
            return [{"instance_id": id, **value} for id, value in content.items()]
    raise BadRecord(f"{str(file)!r} holds no records: a list of them, one, or an object by their ids is expected")


def _of_task(folder: Path) -> dict[str, Any]:
    """The record of a folder of the task repository; its name is the id where task.yaml says none."""
    try:
        raw = parse(_read(folder / "task.yaml"))
        tests = json.loads(_read(folder / "tests.json"))
    except (YamlError, ValueError) as error:
        raise BadRecord(f"{str(folder)!r}: task.yaml or tests.json cannot be read: {error}") from None
    except FileNotFoundError as error:
        raise BadRecord(f"{str(folder)!r} lacks {Path(error.filename).name!r}") from None
    if not isinstance(raw, dict) or not isinstance(tests, dict):
        raise BadRecord(f"{str(folder)!r}: task.yaml must hold 'key: value' lines, and tests.json an object")
    for name, file in _PARTS.items():
        if (folder / file).is_file():
            raw[name] = _read(folder / file)
    return {"instance_id": folder.name, **raw, **tests}


def _read(file: Path) -> str:
    with file.open(encoding="utf-8", newline="") as text:  # as it is: a patch may have CRLF in it
        return text.read()


def _of_table(file: Path) -> list[Any]:
    try:
        if file.suffix == ".parquet":
            return list(importlib.import_module("pyarrow.parquet").read_table(str(file)).to_pylist())
        ipc = importlib.import_module("pyarrow.ipc")
        with importlib.import_module("pyarrow").memory_map(str(file)) as source:
            try:
                return list(ipc.open_stream(source).read_all().to_pylist())
            except ValueError:  # the other of arrow's two forms
                return list(ipc.open_file(source).read_all().to_pylist())
    except ImportError:
        raise BadRecord(
            f"{str(file)!r} needs pyarrow, which is not installed here; install it, or write the file as JSONL, "
            "where it is: pandas.read_parquet(FILE).to_json('records.jsonl', orient='records', lines=True)"
        ) from None
