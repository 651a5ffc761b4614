"""A harness `dry` whose agent asks its model `dry/m` twice, over a route to the stub of a provider."""

from __future__ import annotations

from typing import Any

import yaml
from command import Arena
from stub import Stub

DRY = """schema_version: 1
title: An agent that asks its model twice
command: [python, -I, /opt/harness/dry.py]
files: {/opt/harness/dry.py: dry.py}
api: chat
env: {KEY: "{key}", GATEWAY: "{gateway}"}
terminal_event: {type: end}
models:
  m: {title: A model, id: m-1, route: stub}
"""
ASKS = """import json, os, urllib.request
tools = [{"type": "function", "function": {"name": "bash", "parameters": {}}}]
for messages in [{"role": "user", "content": "x"}], [{"role": "tool", "content": "x"}]:
    body = {"model": "m-1", "messages": messages, "tools": tools}
    headers = {"Authorization": "Bearer " + os.environ["KEY"], "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["GATEWAY"] + "/v1/chat/completions", json.dumps(body).encode(), headers)
    print(json.dumps({"type": "answer", "status": urllib.request.urlopen(request).status}), flush=True)
"""


def asking(arena: Arena, stub: Stub, **route: Any) -> dict[str, str]:
    """Add the harness and the route to a copy of the tree; variables for the command. `route` adds fields."""
    (arena.tree / "harnesses" / "dry.yaml").write_text(DRY)
    (arena.tree / "harnesses" / "dry.py").write_text(ASKS)
    found = {"title": "The stub", "apis": ["chat"], "base_url": f"{stub.url}/v1", "key": None} | route
    file = arena.tree.parent / "routes.yaml"
    file.write_text(yaml.safe_dump({"schema_version": 2, "routes": {"stub": found}}))
    return {"ARENA_ROUTES": str(file)}
