"""Each agent CLI, driven by `arena run` from its start to a scored kernel, with the stub as the provider."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from agents import AGENTS, ANSWERS_AS, CANARY, SMALL, UNSCORED, Agent, Played, against_a_stub, holders, missing, play
from command import needs_sandbox
from stub import SUMMED

pytestmark = [
    pytest.mark.cli,
    needs_sandbox,
]
HALVES = CANARY[:9], CANARY[9:]
# The key is in two halves, because every transcript contains the command. Its findings go into the workspace, whole.
SNOOP = (
    "{ env; cat /proc/*/environ | tr '\\0' '\\n'; cat /proc/*/cmdline | tr '\\0' ' '; "
    f"a={HALVES[0]}; b={HALVES[1]}; "
    'grep -rl "$a$b" /home /tmp /run /etc /workspace; echo searched; } 2>/dev/null | tee seen.txt'
)


@pytest.fixture(params=list(AGENTS.values()), ids=list(AGENTS))
def agent(request) -> Agent:
    if reason := missing(request.param.harness):
        pytest.skip(reason)
    return request.param


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "small.py").write_text(SMALL)
    return tmp_path / "small.py"


def bodies(played: Played) -> list[dict]:
    return [line["body"] for line in played.stub.requests()]


def test_run_from_prompt_to_score(agent: Agent, tmp_path: Path) -> None:
    played = play(tmp_path, agent, ("--budget", "4m"), "--thinking", "--extra", SNOOP)
    session, usage = played.session, played.session["usage"]
    assert played.annotation["score"]["verdict"] == "passed", played.output
    assert session["agent_status"] == "complete", session["message"]
    assert (session["network"], session["unsealed"]) == ("gateway", False)

    reported = played.stub.usage()
    assert {name: usage[f"{name}_tokens"] for name in SUMMED} == reported
    assert (usage["requests"], usage["failed"], usage["unmetered"]) == (len(played.stub.requests()), 0, 0)
    assert usage["efforts"] == [agent.effort]
    assert usage["models"] == [agent.id]

    prompt = (played.folder / "work" / "PROMPT.md").read_text().strip()
    if agent.harness in ("kimi", "mini", "qwen"):
        prompt = "Read PROMPT.md and do what it says."  # they read no prompt from standard input
    assert prompt in every_text(bodies(played)[0])
    if agent.harness != "mini":  # it prints text for people only
        assert {"call", "result", "text", "end"} <= {step["kind"] for step in played.steps}
        assert any("check.py" in str(step["input"]) for step in played.steps if step["kind"] == "call")

    # Arena records the gateway's count; but with a login only the reader counts, so it must count right.
    counted = [step for step in played.steps if step["kind"] == "usage"]
    if agent.harness in ("kimi", "qwen", "mini", "copilot"):
        assert counted == []  # they report no usage, or in a form that no reader needs: none has a login
    else:
        assert {name: sum(step[f"{name}_tokens"] for step in counted) for name in SUMMED} == reported

    seen = (played.folder / "work" / "seen.txt").read_text()
    assert "HOME=/home/agent" in seen and seen.endswith("searched\n")
    assert CANARY not in played.output
    assert holders(played.arena.home, CANARY) == []
    (manifest,) = played.folder.glob("manifest.json")
    assert agent.harness in manifest.read_text()


def test_pkill_by_words_of_the_prompt_spares_the_cli(agent: Agent, tmp_path: Path) -> None:
    """The prompt names `python check.py`, and agents use such words to end what they left running."""
    # opencode waits two minutes for a tool whose own shell is killed; the bracket spares the shell.
    words = "[p]ython check.py" if agent.harness == "opencode" else "python check.py"
    played = play(tmp_path, agent, ("--budget", "2m"), "--check", f"pkill -f '{words}'; true", *UNSCORED[2:])
    assert played.session["agent_status"] == "complete", played.session["message"]
    assert "python check.py" in (played.folder / "work" / "PROMPT.md").read_text()
    assert len(played.stub.requests()) == 3


def test_no_other_model_is_asked(agent: Agent, tmp_path: Path) -> None:
    """Neither for a title nor by a subagent, whichever model its CLI would choose."""
    use = ("--use", *agent.subagent) if agent.subagent[0] else ()
    played = play(tmp_path, agent, ("--budget", "2m"), *UNSCORED, *use)
    assert played.session["agent_status"] == "complete", played.session["message"]
    assert played.session["usage"]["models"] == [agent.id]
    requested = {body.get("model") or line["path"] for line, body in zip(played.stub.requests(), bodies(played), strict=True)}
    assert all(agent.id in model for model in requested), requested
    assert len(played.stub.requests()) > (3 if use else 2)


LONG_TURNS = 60
FULL_TOKENS = {
    "claude": 190_000,
    "codex": 265_000,
    "opencode": 190_000,
    "kimi": 255_000,
    "gemini": 900_000,
    "qwen": 940_000,
    "copilot": 790_000,
    "goose": 950_000,
}
"""Input tokens that the answers report from the middle on: near what each CLI takes for the model's context."""
SMALLER_CONTEXT = {"claude": '  CLAUDE_CODE_AUTO_COMPACT_WINDOW: "200000"  # of its 1,000,000\n'}
SUMMARIES = {"claude": 2}
"""Requests for a summary, where it is not one: Claude Code sends the same one again."""
NEVER_COMPACTS = {"gemini", "goose"}
"""Gemini CLI splits its history only before a message of the user, and a session of one prompt has one: nothing is before it.
Goose did not shorten here, whatever the answers reported."""


def test_long_session_with_a_full_context_completes(agent: Agent, tmp_path: Path) -> None:
    """60 turns, in whose middle the context is full: the CLI asks the same model for a summary and works on."""
    name = agent.harness
    if agent.ends_by:
        pytest.skip("the stub ends its session after the script, so it is never long")
    words = ("--length", str(LONG_TURNS), "--crowded", str(FULL_TOKENS[name]), *UNSCORED)
    added = {name: ("\nenv:\n", "\nenv:\n" + SMALLER_CONTEXT[name])} if name in SMALLER_CONTEXT else {}
    # So many full contexts cost more than a run may without --max-cost.
    played = play(tmp_path, agent, ("--budget", "2m", "--max-cost", "1000"), *words, edits=added)
    session, usage = played.session, played.session["usage"]
    assert session["agent_status"] == "complete", session["message"]

    answers = {line["number"]: line for line in played.stub.lines("answer")}
    sides = [line["number"] for line in answers.values() if line["side"]]
    assert len(answers) - len(sides) == LONG_TURNS
    assert usage["requests"] == len(answers) == len(played.stub.requests())
    assert (usage["models"], usage["failed"], usage["unmetered"]) == ([agent.id], 0, 0)
    ledger = [json.loads(line) for line in (played.folder / "ledger.jsonl").read_text().splitlines()]
    assert [line for line in ledger if line["event"] == "refused"] == []

    turns = [line["turn"] for line in answers.values() if not line["side"]]
    assert turns == list(range(LONG_TURNS))
    sizes = {line["number"]: len(json.dumps(line["body"])) for line in played.stub.requests()}
    middle = next(number for number, line in answers.items() if line["turn"] == LONG_TURNS // 2 and not line["side"])
    shrunk = any(after < before for before, after in pairwise(size for number, size in sizes.items() if number >= middle))
    expected = (0, False) if name in NEVER_COMPACTS else (SUMMARIES.get(name, 1), True)
    assert (len(sides), shrunk) == expected, (sides, list(sizes.values()))


def test_broker_requests_name_the_allowed_provider(tmp_path: Path) -> None:
    if reason := missing("opencode"):
        pytest.skip(reason)
    played = play(tmp_path, AGENTS["opencode"], ("--budget", "2m"), *UNSCORED)
    for body in bodies(played):
        assert body["provider"] == {"order": ["z-ai"], "allow_fallbacks": False}
        assert body["reasoning"] == {"effort": "high"}
        assert "models" not in body and "plugins" not in body
    usage = played.session["usage"]
    assert usage["providers"] == ["Z.AI"]
    assert usage["cost_usd"] == pytest.approx(played.stub.cost_usd())
    assert usage["cost_source"] == "provider"


@pytest.mark.parametrize(
    ("harness", "effort"),
    [("opencode", {"reasoning_effort": "high"}), ("kimi", {"thinking": {"type": "enabled", "effort": "high", "keep": "all"}})],
)
def test_own_server_is_asked_for_its_usage(harness: str, effort: dict, tmp_path: Path) -> None:
    """A server with OpenAI's fields only, such as vLLM: no broker, and no usage in a stream unless the request asks for it."""
    if reason := missing(harness):
        pytest.skip(reason)
    agent = Agent(harness, "own/org/some-model", "org/some-model", "high")
    words = ("--budget", "2m", "--effort", "high")
    played = play(tmp_path, agent, words, "--thinking", *UNSCORED)
    session, usage = played.session, played.session["usage"]
    assert session["agent_status"] == "complete", session["message"]
    for body in bodies(played):
        assert body["stream_options"] == {"include_usage": True}
        assert {name: body.get(name) for name in effort} == effort
        assert not {"reasoning", "usage", "provider"} & body.keys(), body.keys()
    assert (usage["requests"], usage["failed"], usage["unmetered"]) == (3, 0, 0)
    assert {name: usage[f"{name}_tokens"] for name in SUMMED} == played.stub.usage()
    assert (usage["models"], usage["efforts"]) == (["org/some-model"], ["high"])
    assert "thinking" in {step["kind"] for step in played.steps} or harness == "kimi"


def test_claude_may_answer_at_length(tmp_path: Path) -> None:
    """Effort `max` thinks long: at 64,000 tokens the answer would be cut."""
    if reason := missing("claude"):
        pytest.skip(reason)
    played = play(tmp_path, AGENTS["claude"], ("--budget", "2m"), *UNSCORED)
    assert played.session["agent_status"] == "complete", played.session["message"]
    assert {body["max_tokens"] for body in bodies(played)} == {128_000}


@pytest.mark.parametrize(("model", "tokens"), [("gemini-2.5-flash", 24576), ("gemini-2.5-pro", 32768)])
def test_gemini_2_gets_its_largest_thinking_budget(model: str, tokens: int, tmp_path: Path) -> None:
    """A larger budget is an error at Google."""
    if reason := missing("gemini"):
        pytest.skip(reason)
    agent = Agent("gemini", f"google/{model}", model, "high")
    played = play(tmp_path, agent, ("--budget", "2m", "--effort", "high"), *UNSCORED)
    assert played.session["agent_status"] == "complete", played.session["message"]
    assert {body["generationConfig"]["thinkingConfig"]["thinkingBudget"] for body in bodies(played)} == {tokens}


def test_doctor_checks_the_model_end_to_end(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text("x = 1\n")
    words = ("--provider", ANSWERS_AS.get(agent.harness, "Z.AI"), *agent.ends_by)
    with against_a_stub(tmp_path, *words, solution=tmp_path / "task.py") as (arena, _, env):
        done = arena("doctor", "--model", f"{agent.harness}/{agent.model}", env=env)
        assert done.code == 0, done.out + done.err
        for what in ("program", "route and key", "request", "agent"):
            assert f"ok      {what} " in done.out + done.err


@pytest.mark.parametrize("model", ["gpt-5.5", "gpt-6-sol", "gpt-5.2-codex"])
def test_codex_offers_tools_in_three_ways(model: str, tmp_path: Path, small: Path) -> None:
    """A free-form patch, a program in JavaScript, and a shell alone."""
    if reason := missing("codex"):
        pytest.skip(reason)
    agent = Agent("codex", f"openai/{model}", model, "high")
    played = play(tmp_path, agent, ("--budget", "2m", "--effort", "high"), "--check", "true", solution=small)
    assert played.session["agent_status"] == "complete", played.session["message"]
    assert (played.folder / "work" / "solution.py").read_text() == SMALL


def every_text(value: object) -> str:
    """All strings of a JSON document, joined."""
    if isinstance(value, str):
        return value + "\n"
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return "".join(map(every_text, parts))
