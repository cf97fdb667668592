"""What agents and models' servers may send to a capture and to journals: keys, routes, shapes, depths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aenv.base.addresses import parse_url
from aenv.base.errors import InvalidRequest, NotJudged, ToolError, ToolServerError
from aenv.base.http1 import Pool
from aenv.integrations.tool_episode import EpisodeOptions, ToolEpisode
from aenv.rollouts import journal, known_secrets, transcripts
from aenv.rollouts.agents import _take
from aenv.rollouts.capture import Capture
from aenv.rollouts.capture.covered import CoveredStream
from aenv.rollouts.capture.exchange_log import ExchangeLog
from aenv.rollouts.capture.named_capture import NamedCapture
from aenv.rollouts.episodes import AgentUsage
from aenv.rollouts.exports import atif
from aenv.rollouts.recorder import Recorder
from aenv.rollouts.results import RunIdentity
from aenv.rollouts.synthesis.similarity import GuardedTexts
from aenv.rollouts.synthesis.templates import template_file
from aenv.rollouts.task import task_file
from aenv.rollouts.trajectory import Trajectory, TrajectoryHead
from tests.streaming_models import completion, post, streaming_model

KEY = "sk-the-real-key-of-the-server"
HEAD = TrajectoryHead("r1", "two")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("DELETE", "models/ft:x", 405), ("PUT", "models/m", 405), ("GET", "messages/count_tokens", 405)],
)
async def test_no_other_method_reaches_the_server_with_its_key(method: str, path: str, status: int) -> None:
    async with streaming_model({"data": []}) as model, Capture(model.url, KEY) as capture, Pool() as pool:
        access = capture.admit(ExchangeLog(journal.Journal(), Trajectory(HEAD)))
        origin, base = parse_url(access.url)
        response = await pool.request(origin, method, f"{base}/{path}", [("x-api-key", access.key)])
        reply = json.loads(await response.read())
        assert (response.status, "takes" in reply["error"]["message"], model.asked) == (status, True, [])


@pytest.mark.parametrize("status", [401, 402, 403, 404, 302])
async def test_a_key_or_url_that_is_wrong_is_no_fault_of_the_agents(status: int) -> None:
    async with streaming_model((status, "{}"), (400, "{}")) as model, Capture(model.url, KEY) as capture:
        log = ExchangeLog(journal.Journal(), Trajectory(HEAD))
        access = capture.admit(log)
        await post(access.url, "chat/completions", {"messages": []}, ("x-api-key", access.key))
        assert isinstance(log.failure, NotJudged)
        assert (log.failure.outcome, str(status) in log.failure.reason) == ("not_ready", True)
        await post(access.url, "chat/completions", {"messages": []}, ("x-api-key", access.key))
        assert log.failure is None


async def test_agents_do_not_choose_who_pays_and_nothing_compressed_is_asked_for() -> None:
    async with streaming_model(completion()) as model, Capture(model.url, KEY) as capture:
        access = capture.admit(ExchangeLog(journal.Journal(), Trajectory(HEAD)))
        own = [("x-api-key", access.key), ("openai-organization", "o"), ("openai-beta", "b")]
        await post(access.url, "chat/completions", {"messages": []}, *own, ("accept-encoding", "gzip"))
        asked = model.asked[0].headers
        assert (asked["accept-encoding"], asked["openai-beta"]) == ("identity", "b")
        assert "openai-organization" not in asked


async def test_a_body_that_is_nested_too_deep_is_refused() -> None:
    async with streaming_model() as model, Capture(model.url, KEY) as capture:
        access = capture.admit(ExchangeLog(journal.Journal(), Trajectory(HEAD)))
        for depth in (500, 100_000):
            body = b'{"messages":' + b"[" * depth + b"]" * depth + b"}"
            status, reply = await post(access.url, "chat/completions", body, ("x-api-key", access.key))
            assert (status, reply["error"]["code"]) == (400, "invalid_json")


def test_a_key_is_covered_wherever_a_stream_is_cut() -> None:
    text = f"a {KEY} b {KEY[:6]}".encode()
    for cut in range(len(text)):
        stream = CoveredStream([KEY])
        assert stream.piece(text[:cut]) + stream.piece(text[cut:]) + stream.rest() == b"a *** b sk-the"


async def test_the_name_of_the_unnamed_rollout_is_the_same_rollout(tmp_path: Path) -> None:
    with journal.opened(tmp_path / "run.jsonl", RunIdentity("")) as file:
        async with streaming_model(completion(), completion()) as model:
            capture = NamedCapture(file, model.url)
            await capture.__aenter__()
            for name in ("", "-capture"):
                key = ("x-api-key", capture.key + name)
                assert (await post(capture.url, "chat/completions", {"messages": []}, key))[0] == 200
            await capture.__aexit__()
    (found,) = journal.read(tmp_path / "run.jsonl").trajectories.values()
    assert len(found.exchanges) == 2


async def test_the_key_of_a_named_capture_is_not_recorded_under_any_name(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    with journal.opened(file, RunIdentity("")) as written:
        async with streaming_model(completion()) as model, NamedCapture(written, model.url) as capture:
            assert isinstance(capture, NamedCapture)
            message = {"role": "user", "content": f"OPENAI_API_KEY={capture.key}, and {capture.key}-one"}
            key = ("x-api-key", f"{capture.key}-one")
            assert (await post(capture.url, "chat/completions", {"messages": [message]}, key))[0] == 200
    assert "OPENAI_API_KEY=***, and ***" in file.read_text()
    assert capture.key not in file.read_text()


def test_secrets_among_variables_are_in_no_line(tmp_path: Path) -> None:
    secret = {
        "MY_PASSWD": "hunter2hunter2",
        "AUTH": "Basic dTpwYXNz",
        "MY_API_KEY": "outcome-messages",
        "DATABASE_URL": "postgres://me:long%20word@db/x",
    }
    assert known_secrets.told({**secret, "AUTHOR": "me", "DOMAIN": "retail"}) == {
        **dict.fromkeys(secret, "***"),
        "AUTHOR": "me",
        "DOMAIN": "retail",
    }
    with journal.opened(tmp_path / "run.jsonl", RunIdentity("")) as file:
        file.hide(known_secrets.values(secret))
        recorder = Recorder(file, HEAD, [])
        told = " ".join((*secret.values(), "long word"))
        recorder.call(recorder.begin(), 0.1, "tool", "login", {"a": told}, error=told)
    text = (tmp_path / "run.jsonl").read_text()
    assert not [value for value in (*secret.values(), "long word") if value in text]
    (step,) = journal.read(tmp_path / "run.jsonl").trajectories["r1"].steps
    assert step.call and step.call.error == "*** *** *** *** ***"
    assert recorder.trajectory.steps == [step]


@pytest.mark.parametrize("calls", [["x"], "x", [{"function": "f"}], [{"function": {"name": 1}}], {"a": 1}])
def test_calls_that_have_no_shape_are_left_out(calls: Any) -> None:
    recorder = Recorder(journal.Journal(), HEAD, [])
    recorder.message({"role": "assistant", "content": "hi", "tool_calls": calls})
    assert "hi" in transcripts.transcript(recorder.trajectory)
    assert "tool_calls" not in atif.document(recorder.trajectory)["steps"][0]
    assert recorder.trajectory.messages == [{"role": "assistant", "content": "hi"}]


def test_what_is_too_deep_or_no_json_is_not_written_and_not_read(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    with journal.opened(tmp_path / "run.jsonl", RunIdentity("")) as file:
        recorder = Recorder(file, HEAD, [])
        recorder.call(recorder.begin(), 0.1, "tool", "add", {"a": deep, "b": float("nan")})
    assert "NaN" not in (tmp_path / "run.jsonl").read_text()
    (step,) = journal.read(tmp_path / "run.jsonl").trajectories["r1"].steps
    assert step.call and step.call.arguments["b"] == "nan"
    (tmp_path / "tasks.jsonl").write_text("[" * 100_000)
    with pytest.raises(InvalidRequest, match="line 1 is not JSON"):
        task_file(tmp_path / "tasks.jsonl")


async def test_a_lost_call_is_raised_and_a_tool_that_fails_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[ToolError] = [ToolServerError("gone"), ToolError("no such tool")]

    class Broken:
        async def call_tool(self, *_: Any) -> None:
            raise raised.pop(0)

    episode = ToolEpisode(EpisodeOptions("x@1.0.0"))
    monkeypatch.setattr(episode, "_begun", lambda: (Broken(), None))
    with pytest.raises(ToolServerError):
        await episode.call("add", {})
    assert (await episode.call("add", {})).is_error


def test_a_template_may_not_choose_what_is_no_number(tmp_path: Path) -> None:
    line = '{"id": "a", "parameters": {"n": [NaN]}, "variables": {"N": "{n}"}}'
    (tmp_path / "t.jsonl").write_text(line)
    with pytest.raises(InvalidRequest, match="is not a number of JSON"):
        template_file(tmp_path / "t.jsonl")


@pytest.mark.parametrize("used", [{"cost": float("nan")}, {"tokens": {"in": -1}}])
def test_an_agent_cannot_have_used_less_than_nothing(used: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="0 or more"):
        _take(used, AgentUsage())


@pytest.mark.parametrize(
    ("guarded", "text"),
    [
        ("how many apples does the farmer have", "how_many_apples_does_the_farmer_have"),
        ("how many apples does the farmer have", "how ma\u200bny app\u200dles does the far\u2060mer have"),
        ("请帮我取消明天的航班预订", "请帮我取消明天的航班预订吧"),
    ],
)
def test_signs_that_are_not_seen_do_not_hide_a_guarded_text(guarded: str, text: str) -> None:
    assert GuardedTexts([guarded]).is_near(text)
