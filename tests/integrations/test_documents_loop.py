"""The loop of the documents, with the OpenAI Agents SDK and tau2, as it is printed there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.documents.untried import TAU2_LOOP
from tests.gateways import Gateway, running_gateway

from .agent_models import Call, agent_model
from .conftest import Run
from .frameworks import ROOT

RUN_BLOCK = ROOT / "tests" / "documents" / "run_block.py"
ENDED = "status['termination'] == 'user_stop' and reward['total_reward'] in (0.0, 1.0)"


@pytest.fixture
async def gateway(tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    monkeypatch.setenv("TAU2_DATA_DIR", str(shared / "data"))
    async with running_gateway(tmp_path / "home") as running:
        yield running


async def test_the_documents_loop_plays_tau2_until_the_customer_leaves(
    run: Run, tmp_path: Path, shared: Path
) -> None:
    block = tmp_path / "block.py"
    block.write_text(TAU2_LOOP.code(shared / "documents"))
    script = [Call("get_user_details", {"user_id": "raj_sanchez_7340"}), *["I cannot cancel that."] * 20]
    async with agent_model(script) as model:
        variables = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none"}
        await run("openai_agents", "documents_loop.py", str(RUN_BLOCK), str(block), ENDED, **variables)
    first = model.asked[0]
    assert first["messages"][0]["role"] == "system"
    assert "policy" in first["messages"][0]["content"]
    assert "get_user_details" in model.functions
    assert model.heard(0, "raj_sanchez_7340")
