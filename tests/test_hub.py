"""The hub: versions are published, found, listed, released and deleted, by real HTTP on a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aenv.base import config, refs
from aenv.base.errors import NotFound
from aenv.control.serving.accounts import LOCAL
from tests.archives import make_source
from tests.hubs import RunningHub, running_hub

# In the forms that published clients send: camelCase, and no bundle.
RECORD = {
    "name": "echo",
    "version": "1.0.0",
    "description": "says it back",
    "tags": ["demo", "text"],
    "status": "Ready",
    "codeUrl": "oss://somewhere/echo-1.0.0.tar",
    "artifacts": [{"id": "1", "type": "image", "content": "registry/echo:1.0.0"}],
    "buildConfig": {"dockerfile": "./Dockerfile"},
    "testConfig": {"script": "pytest xxx"},
    "deployConfig": {"cpu": "1", "environmentVariables": {"API_KEY": "s3cret"}},
    "surprise": "ignored",
}


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[RunningHub]:
    async with running_hub(tmp_path / "home") as running:
        yield running


async def versions(hub: RunningHub, target: str) -> list[str]:
    return [f"{env['name']}@{env['version']}" for env in await hub.get(target)]


class TestPublishing:
    @pytest.mark.parametrize("slash", ["", "/"])
    async def test_a_published_clients_record_comes_back_in_snake_case(self, hub, slash):
        answer = await hub.ask("POST", f"/env{slash}", RECORD)
        assert (answer.status, answer.data) == (200, True)
        env = await hub.get(f"/env/echo/1.0.0{slash}")
        assert env["id"] == "echo-1.0.0"
        assert env["code_url"] == RECORD["codeUrl"]
        assert env["artifacts"] == RECORD["artifacts"]
        assert env["test_config"] == {"script": "pytest xxx"}
        assert (env["description"], env["tags"], env["status"]) == ("says it back", ["demo", "text"], 6)
        assert (env["owner"], env["access"], env["pushed_by"], env["digest"]) == ("local", "team", "local", None)

    async def test_snake_case_is_understood_too(self, hub):
        await hub.ask(
            "POST", "/env", {"name": "a", "version": "1", "code_url": "x", "deploy_config": {"cpu": "2"}}
        )
        env = await hub.get("/env/a/1")
        assert (env["code_url"], env["deploy_config"]) == ("x", {"cpu": "2"})

    async def test_the_values_of_variables_are_kept_and_never_shown(self, hub):
        await hub.ask("POST", "/env", RECORD)
        for target in ("/env", "/env/echo/1.0.0", "/env/echo", "/env?q=echo"):
            assert b"s3cret" not in (await hub.ask("GET", target)).body
        shown = (await hub.get("/env/echo/1.0.0"))["deploy_config"]
        assert shown["environmentVariables"] == {"API_KEY": "***"}
        found = await hub.hub.find(refs.parse("echo"), LOCAL)
        assert found.deploy_config["environmentVariables"] == {"API_KEY": "s3cret"}

    async def test_what_was_read_can_be_sent_back_without_losing_a_hidden_value(self, hub):
        await hub.ask("POST", "/env", RECORD)
        shown = (await hub.get("/env/echo/1.0.0"))["deploy_config"]
        changed = {**shown, "cpu": "4", "environmentVariables": {**shown["environmentVariables"], "MORE": "1"}}
        assert (await hub.ask("PUT", "/env/echo/1.0.0", {"deployConfig": changed})).status == 200
        found = await hub.hub.find(refs.parse("echo"), LOCAL)
        assert found.deploy_config == {"cpu": "4", "environmentVariables": {"API_KEY": "s3cret", "MORE": "1"}}

    async def test_a_bundle_says_what_need_not_be_sent(self, hub):
        assert (await hub.push("echo", "1.0.0")).status == 200
        env = await hub.get("/env/echo/1.0.0")
        assert (env["description"], env["tags"], env["status"]) == ("the echo", ["demo"], 6)
        assert (env["readme"], env["size_bytes"] > 1000) == ("# echo\n", True)
        assert env["dependencies"] == {"requirements": ["aenvironment", "httpx>=0.27"], "environments": []}
        assert [tool["name"] for tool in env["tools"]] == ["echo"]
        assert env["tools"][0]["inputSchema"]["required"] == ["text"]
        assert [reward["name"] for reward in env["rewards"]] == ["score"]

    async def test_what_is_sent_counts_more_than_the_bundles_config(self, hub):
        tools = [{"name": "other", "description": "as its runtime says", "inputSchema": {}}]
        body = {"description": "mine", "metadata": {"tools": tools}, "dependencies": {"environments": ["base@^1"]}}
        await hub.push("echo", "1.0.0", **body)
        env = await hub.get("/env/echo/1.0.0")
        assert (env["description"], env["tags"], env["tools"]) == ("mine", ["demo"], tools)
        assert env["dependencies"]["environments"] == ["base@^1"]

    async def test_the_bundles_own_readme_counts_and_not_what_a_client_claims(self, hub):
        await hub.push("echo", "1.0.0", readme="another", dependencies={"requirements": ["nothing"]})
        env = await hub.get("/env/echo/1.0.0")
        assert (env["readme"], env["dependencies"]["requirements"][0]) == ("# echo\n", "aenvironment")

    async def test_a_bundle_of_another_version_is_refused_with_both_names(self, hub):
        await hub.push("echo", "1.0.0")
        digest = (await hub.get("/env/echo/1.0.0"))["digest"]
        answer = await hub.ask("POST", "/env", {"name": "echo", "version": "2.0.0", "bundle": digest})
        assert answer.status == 400
        assert "'echo@1.0.0', and not of 'echo@2.0.0'" in answer.message

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ({"version": "1"}, "'name'"),
            ({"name": "a"}, "'version'"),
            ({"name": "../a", "version": "1"}, "bad environment name '../a'"),
            ({"name": "a", "version": "1/2"}, "bad version '1/2'"),
            ({"name": "a", "version": "latest"}, "bad version 'latest'"),
            ({"name": "a", "version": "^1.2"}, "bad version '^1.2'"),
            ({"name": "a", "version": "access"}, "bad version 'access'"),
            ({"name": "a", "version": "1", "status": "Finished"}, "'status'"),
            ({"name": "a", "version": "1", "status": 9}, "'status'"),
            ({"name": "a", "version": "1", "tags": "x"}, "'tags'"),
            ({"name": "a", "version": "1", "bundle": "x"}, "'bundle'"),
            ({"name": "a", "version": "1", "bundle": "0" * 64}, "not uploaded"),
            ({"name": "a", "version": "1", "deployConfig": []}, "'deployConfig'"),
            ({"name": "a", "version": "1", "dependencies": {"environments": ["a b"]}}, "'a b'"),
        ],
    )
    async def test_a_bad_field_is_refused_by_its_name(self, hub, body, message):
        answer = await hub.ask("POST", "/env", body)
        assert answer.status == 400
        assert message in answer.message
        assert await hub.get("/env") == []

    async def test_names_that_look_alike_when_joined_stay_apart(self, hub):
        await hub.ask("POST", "/env", {"name": "a-1", "version": "2", "description": "one"})
        await hub.ask("POST", "/env", {"name": "a", "version": "1-2", "description": "other"})
        assert (await hub.get("/env/a-1/2"))["description"] == "one"
        assert (await hub.get("/env/a/1-2"))["description"] == "other"


class TestConflicts:
    async def test_a_version_that_exists_is_refused_with_both_digests(self, hub):
        await hub.push("echo", "1.0.0")
        there = (await hub.get("/env/echo/1.0.0"))["digest"]
        answer = await hub.push("echo", "1.0.0", files={"more": "x"})
        assert answer.status == 409
        assert f"has sha256 {there}, and you sent sha256 " in answer.message

    async def test_the_same_content_again_is_said_to_be_the_same(self, hub):
        await hub.push("echo", "1.0.0")
        answer = await hub.push("echo", "1.0.0")
        assert answer.status == 409
        assert "with the same content" in answer.message

    async def test_of_many_pushes_at_once_one_wins_and_the_others_are_told_which(self, hub):
        sent = [{"name": "a", "version": "1", "description": f"push {n}"} for n in range(8)]
        answers = await asyncio.gather(*(hub.ask("POST", "/env", body) for body in sent))
        assert sorted(answer.status for answer in answers) == [200] + [409] * 7
        winner = next(body for body, answer in zip(sent, answers, strict=True) if answer.status == 200)
        assert (await hub.get("/env/a/1"))["description"] == winner["description"]
        assert all("pushed by 'local'" in answer.message for answer in answers if answer.status == 409)

    async def test_an_unreleased_version_is_replaced_where_something_is_given(self, hub):
        await hub.ask("POST", "/env", RECORD)
        before = await hub.get("/env/echo/1.0.0")
        assert (await hub.ask("PUT", "/env/echo/1.0.0", {"description": "new", "tags": None})).data is True
        after = await hub.get("/env/echo/1.0.0")
        assert (after["description"], after["tags"]) == ("new", ["demo", "text"])
        assert after["created_at"] == before["created_at"]

    async def test_a_body_of_another_version_does_not_replace_this_one(self, hub):
        await hub.ask("POST", "/env", RECORD)
        answer = await hub.ask("PUT", "/env/echo/1.0.0", {"name": "echo", "version": "2.0.0"})
        assert answer.status == 400
        assert answer.message == "field 'version': the body says '2.0.0', and the path names 'echo@1.0.0'"

    async def test_what_does_not_exist_cannot_be_replaced(self, hub):
        assert (await hub.ask("PUT", "/env/echo/1.0.0", RECORD)).status == 404


class TestReleases:
    async def test_a_released_version_stays_as_it_is(self, hub):
        await hub.push("echo", "1.0.0")
        before = await hub.get("/env/echo/1.0.0")
        assert (await hub.ask("POST", "/env/echo/1.0.0/release")).data is True
        assert (await hub.get("/env/echo/1.0.0/status")) == {"status": "Released"}
        assert (await hub.ask("POST", "/env/echo/1.0.0/release")).status == 409
        answer = await hub.ask("PUT", "/env/echo/1.0.0", {"description": "new", "status": "Ready"})
        assert (answer.status, "another 'description'" in answer.message) == (409, True)
        after = await hub.get("/env/echo/1.0.0")
        assert after == {**before, "status": 7, "updated_at": after["updated_at"]}

    async def test_another_bundle_for_a_released_version_is_refused_with_both_digests(self, hub):
        await hub.push("echo", "1.0.0")
        await hub.ask("POST", "/env/echo/1.0.0/release")
        there = (await hub.get("/env/echo/1.0.0"))["digest"]
        refused = await hub.push("echo", "1.0.0", files={"more": "x"})
        new = refused.message.rpartition("sha256 ")[2].partition(";")[0]
        answer = await hub.ask("PUT", "/env/echo/1.0.0", {"bundle": new})
        assert answer.status == 409
        assert f"has sha256 {there}, and you sent sha256 {new}" in answer.message

    async def test_pushing_the_same_to_a_released_version_is_fine(self, hub):
        await hub.push("echo", "1.0.0")
        await hub.ask("POST", "/env/echo/1.0.0/release")
        there = await hub.get("/env/echo/1.0.0")
        body = {"bundle": there["digest"], "description": there["description"], "artifacts": [], "status": "Ready"}
        assert (await hub.ask("PUT", "/env/echo/1.0.0", body)).data is True
        assert await hub.get("/env/echo/1.0.0") == there

    async def test_an_image_can_be_set_until_then(self, hub):
        await hub.ask("POST", "/env", {**RECORD, "artifacts": [{"type": "bundle", "content": "x"}]})
        assert (await hub.ask("POST", "/env/echo/1.0.0/aci_trigger", {"image": "r/echo:2"})).data is True
        assert (await hub.ask("POST", "/env/echo/1.0.0/aci_trigger", {"image": "r/echo:2"})).data is False
        images = (await hub.get("/env/echo/1.0.0"))["artifacts"]
        assert images == [{"type": "bundle", "content": "x"}, {"type": "image", "content": "r/echo:2"}]
        await hub.ask("POST", "/env/echo/1.0.0/release")
        assert (await hub.ask("POST", "/env/echo/1.0.0/aci_trigger", {"image": "r/echo:3"})).status == 409

    async def test_a_released_version_is_deleted_by_force_only(self, hub):
        await hub.push("echo", "1.0.0")
        await hub.ask("POST", "/env/echo/1.0.0/release")
        assert (await hub.ask("DELETE", "/env/echo/1.0.0")).status == 409
        assert (await hub.ask("DELETE", "/env/echo/1.0.0?force=true")).data is True
        assert await hub.get("/env/echo/1.0.0/exists") == {"exists": False}
        assert (await hub.ask("GET", "/env/echo")).status == 404


class TestFinding:
    @pytest.fixture(autouse=True)
    async def _several(self, hub: RunningHub) -> None:
        for version in ("1.0.0", "1.2.0", "1.10.0", "2.0.0-rc.1"):
            await hub.ask("POST", "/env", {"name": "echo", "version": version, "tags": [f"t{version}", "demo"]})
        await hub.ask("POST", "/env", {"name": "web", "version": "nightly", "description": "Browses THE net"})

    @pytest.mark.parametrize(
        ("spec", "version"),
        [
            ("latest", "1.10.0"),
            ("^1.0", "1.10.0"),
            ("~1.2.0", "1.2.0"),
            ("%3E=1.0,%3C1.10", "1.2.0"),
            ("1.x", "1.10.0"),
            ("*", "1.10.0"),
            ("2.0.0-rc.1", "2.0.0-rc.1"),
            (">=2.0.0-a", "2.0.0-rc.1"),
        ],
    )
    async def test_a_range_means_the_latest_version_in_it(self, hub, spec, version):
        assert (await hub.get(f"/env/echo/{spec}"))["version"] == version
        assert (await hub.get(f"/env/echo/{spec}/exists")) == {"exists": True, "status": 0}

    async def test_what_does_not_exist_is_answered_with_what_is_near(self, hub):
        answer = await hub.ask("GET", "/env/ecco/1.0.0")
        assert answer.status == 404
        assert answer.message.startswith(
            "environment 'ecco@1.0.0' not found; the hub has echo@2.0.0-rc.1, echo@1.10"
        )
        assert "echo@1.2.0" in (await hub.ask("GET", "/env/echo/^3")).message
        with pytest.raises(NotFound, match=r"web@nightly"):
            await hub.hub.find(refs.parse("web@1"), LOCAL)

    async def test_lists_are_sorted_paged_and_counted(self, hub):
        answer = await hub.ask("GET", "/env?limit=2&offset=1")
        assert [env["version"] for env in answer.data] == ["1.2.0", "1.10.0"]
        assert (answer.envelope["total"], answer.headers["x-total-count"]) == (5, "5")
        assert await hub.get("/env?offset=5") == []

    @pytest.mark.parametrize(
        "query", ["limit=0", "limit=1001", "limit=x", "offset=-1", "limit=1e3", "limit=%C2%B2"]
    )
    async def test_a_page_that_makes_no_sense_is_refused(self, hub, query):
        assert (await hub.ask("GET", f"/env?{query}")).status == 400

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("q=the+NET", ["web@nightly"]),
            ("q=browses", ["web@nightly"]),
            ("q=ech", ["echo@1.0.0", "echo@1.2.0", "echo@1.10.0", "echo@2.0.0-rc.1"]),
            ("q=t1.10.0+demo", ["echo@1.10.0"]),
            ("tags=demo,t1.2.0", ["echo@1.2.0"]),
            ("tags=demo&q=1.0", ["echo@1.0.0"]),
            ("name=web", ["web@nightly"]),
            ("name=web&tags=demo", []),
            ("name=we", []),
            ("tags=demo&limit=1&offset=1", ["echo@1.2.0"]),
        ],
    )
    async def test_lists_are_searched_by_text_tags_and_name(self, hub, query, found):
        assert await versions(hub, f"/env?{query}") == found

    async def test_the_total_of_a_search_counts_all_that_fits(self, hub):
        assert (await hub.ask("GET", "/env?tags=demo&limit=1")).envelope["total"] == 4


class TestHistory:
    async def test_each_version_tells_what_changed_since_the_one_before(self, hub):
        await hub.push("echo", "1.0.0", files={"old": "x"})
        code = "from aenv import register_tool\n@register_tool\ndef shout(text: str): ...\n"
        await hub.push("echo", "1.1.0", files={"src__more_dot_py": code})
        history = await hub.get("/env/echo")
        assert [line["version"] for line in history["versions"]] == ["1.1.0", "1.0.0"]
        newest, first = history["versions"]
        assert (newest["previous"], first["previous"], first["changes"]) == ("1.0.0", None, None)
        assert newest["changes"] == {
            "files": {"added": ["src/more.py"], "removed": ["old"], "changed": ["config.json"]},
            "tools": {"added": ["shout"], "removed": [], "changed": []},
        }
        assert (await hub.get("/env/echo/1.1.0"))["changes"] == newest["changes"]

    async def test_a_version_between_two_others_is_compared_with_the_lower_one(self, hub):
        for version in ("1.0.0", "2.0.0", "1.5.0"):
            await hub.push("echo", version)
        assert [line["previous"] for line in (await hub.get("/env/echo"))["versions"]] == ["1.0.0", "1.0.0", None]

    async def test_of_many_changes_a_hundred_are_named(self, hub):
        await hub.push("echo", "1.0.0")
        await hub.push("echo", "1.1.0", files={f"f{n}": "x" for n in range(300)})
        assert len((await hub.get("/env/echo/1.1.0"))["changes"]["files"]["added"]) == 100

    async def test_everything_that_was_done_is_in_the_log(self, hub):
        await hub.push("echo", "1.0.0")
        await hub.ask("PUT", "/env/echo/1.0.0", {"description": "new"})
        await hub.ask("PUT", "/env/echo/access", {"access": "public"})
        await hub.ask("POST", "/env/echo/1.0.0/release")
        await hub.ask("DELETE", "/env/echo/1.0.0?force=true")
        await hub.ask("POST", "/env", {"name": "other", "version": "1"})
        lines = await hub.get("/env/echo/audit")
        assert [line["action"] for line in lines] == ["delete", "release", "access", "update", "push"]
        assert {line["environment"] for line in lines} == {"echo@1.0.0", "echo"}
        assert all(line["user"] == "local" for line in lines)
        first = await hub.ask("GET", "/audit?limit=4")
        rest = await hub.ask("GET", f"/audit?limit=4&cursor={first.envelope['next']}")
        assert [line["action"] for line in first.data + rest.data] == ["push", *(line["action"] for line in lines)]
        assert rest.envelope["next"] is None


class TestFolders:
    @pytest.fixture
    async def hub(self, tmp_path: Path) -> AsyncIterator[RunningHub]:
        project = config.load_project(make_source(tmp_path / "source", "local-env", "1.0.0"))
        async with running_hub(tmp_path / "home", local={"local-env": {"1.0.0": project}}) as running:
            yield running

    async def test_a_folder_of_the_server_is_shown_like_a_version_without_an_owner(self, hub):
        env = await hub.get("/env/local-env/latest")
        assert (env["status"], env["owner"], env["digest"], env["readme"]) == (6, None, None, "# echo\n")
        assert [tool["name"] for tool in env["tools"]] == ["echo"]
        assert await hub.get("/env/local-env/1.0.0/exists") == {"exists": True, "status": 6}
        assert [line["version"] for line in (await hub.get("/env/local-env"))["versions"]] == ["1.0.0"]

    async def test_it_stands_in_lists_before_what_was_published(self, hub):
        for name in ("a", "b", "z"):
            await hub.ask("POST", "/env", {"name": name, "version": "1", "tags": ["demo"]})
        assert await versions(hub, "/env") == ["local-env@1.0.0", "a@1", "b@1", "z@1"]
        assert await versions(hub, "/env?limit=2") == ["local-env@1.0.0", "a@1"]
        assert await versions(hub, "/env?limit=2&offset=1") == ["a@1", "b@1"]
        assert await versions(hub, "/env?limit=2&offset=2&tags=demo") == ["b@1", "z@1"]
        assert (await hub.ask("GET", "/env?limit=1&offset=3")).envelope["total"] == 4

    async def test_it_cannot_be_pushed_over_nor_changed(self, hub):
        assert (await hub.push("local-env", "1.0.0")).status == 409
        for method, end in (("PUT", ""), ("DELETE", ""), ("POST", "/release"), ("POST", "/sign")):
            answer = await hub.ask(method, f"/env/local-env/1.0.0{end}", {})
            assert (answer.status, "folder on the server" in answer.message) == (409, True)
        assert (await hub.push("local-env", "1.1.0")).status == 200
        assert [line["version"] for line in (await hub.get("/env/local-env"))["versions"]] == ["1.1.0", "1.0.0"]


async def test_images_of_a_scenario_come_from_a_file_of_the_server(hub):
    (hub.home / "data").mkdir(parents=True)
    (hub.home / "data" / "swebench.json").write_text('{"django-1": "registry/django:1"}')
    image = await hub.get("/data?scenario=swebench&instance=django-1")
    assert image == {"image": "registry/django:1", "instance": "django-1"}
    assert await hub.get("/data?scenario=swebench&instance=other") is None
    assert await hub.get("/data?scenario=other&instance=other") is None
    for query in ("scenario=..%2Fx&instance=a", "scenario=swebench", ""):
        assert (await hub.ask("GET", f"/data?{query}")).status == 400
