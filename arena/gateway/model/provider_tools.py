"""What a request would have the provider do or fetch by itself, where no wall of ours stands: refused.

A provider's own tools search the web, run code and call other models. Which ones there are changes from month to month, so the
tools that the program itself carries out are listed here, and no other is passed on. Names of fields are compared without case
and underscores, as some providers take `google_search` and `googleSearch` alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from arena.gateway.refusal import Refusal
from arena.schema import Api

Json = Mapping[str, Any]
SAID = 60
"""Characters of a request's own words that are told."""
CONVERSATIONS = {"messages", "input", "system", "instructions", "contents", "systeminstruction"}
CONTENT = {"content", "parts", "output", "source", "imageurl", "videourl", "audiourl", "file", "filedata", "functionresponse"}
"""Keys that lead to more content. Not `input`, `args` or `response`: those are the agent's own tools' business."""
LINKS = {"url", "imageurl", "videourl", "audiourl", "fileurl", "fileuri"}
FORBIDDEN = {
    "mcpservers": "tools of other hosts",
    "container": "a machine of the provider's",
    "plugins": "plugins of the broker's",
    "websearchoptions": "a web search",
    "searchparameters": "a web search",
    "searchoptions": "a web search",
    "enablesearch": "a web search",
    "enablecodeinterpreter": "a machine of the provider's",
    "deferredtools": "tools of the broker's",
    "stopservertoolswhen": "tools of the broker's",
    "models": "other models",
    "fallbacks": "other models",
    "route": "other models",
    "preset": "settings that lie with the provider",
    "prompt": "a prompt that lies with the provider",
    "background": "an answer that is fetched later",
    "previousresponseid": "a conversation that lies with the provider",
    "conversation": "a conversation that lies with the provider",
    "thread": "a conversation that lies with the provider",
    "cachedcontent": "content that lies with the provider",
}
FORBIDDEN_SETTINGS = {"routingconfig": "other models", "modelselectionconfig": "other models"}
ANTHROPIC_TOOLS = ("bash_", "text_editor_", "memory_", "tool_search_tool_")
OPENAI_TOOLS = {"function", "custom", "local_shell", "apply_patch", "tool_search", "namespace"}
BROKER_TOOLS = {"function", "custom", "namespace"}
"""A broker may carry out others itself, those of the same names too."""
DEPTH = 8
"""Of tools inside of tools."""
TIERS = ("auto", "default", "standard", "standard_only")
CHOICES = {"auto", "any", "none", "required", "tool", "allowed_tools", "shell"} | OPENAI_TOOLS


def plain(name: str) -> str:
    """A field's name as it is compared."""
    return name.replace("_", "").lower()


def check(api: Api, broker: bool, body: Json) -> None:
    """Refusal 403 when the provider would do or fetch something by itself. The body's names are `plain`."""
    for name, what in FORBIDDEN.items():
        if body.get(name):
            raise Refusal(403, f"`{name}` is not passed on: {what}")
    settings = body.get("generationconfig")
    for name in settings if isinstance(settings, dict) else ():
        if plain(name) in FORBIDDEN_SETTINGS:
            raise Refusal(403, f"`{name}` is not passed on: {FORBIDDEN_SETTINGS[plain(name)]}")
    _tools(api, broker, body.get("tools"))
    _priority(body)
    choice = body.get("toolchoice")
    if not isinstance(choice, str | dict | None):
        raise Refusal(400, "`tool_choice` is a word or an object")
    kind = str(choice.get("type", "auto")) if isinstance(choice, dict) else "auto"
    if kind not in CHOICES:
        raise Refusal(403, f"`tool_choice` {kind[:SAID]!r} is not passed on: a tool of the provider's")
    for name in CONVERSATIONS & body.keys():
        for part in _parts(body[name]):
            _part(api, broker, part)


def _priority(body: Json) -> None:
    """Ways to be served at another price, or at another speed than other runs."""
    tier, speed = body.get("servicetier"), body.get("speed")
    if tier is not None and not (isinstance(tier, str) and tier.lower() in TIERS):
        raise Refusal(403, "`service_tier` is passed on with auto, default or standard_only: others have other prices")
    if speed not in (None, "standard"):
        raise Refusal(403, "`speed` is not passed on: it has another price")


def _tools(api: Api, broker: bool, tools: object, depth: int = 0) -> None:
    if not isinstance(tools, list | None):  # Google takes an object for a list
        raise Refusal(400, "`tools` is a list")
    if depth > DEPTH:
        raise Refusal(400, "tools are nested too deep")
    for tool in tools or ():
        if not isinstance(tool, dict):
            raise Refusal(400, "a tool is an object")
        if api == "gemini":
            if other := [name for name in tool if plain(name) != "functiondeclarations"]:
                raise Refusal(403, f"tool {other[0][:SAID]!r} is not passed on: the provider would carry it out itself")
            continue
        kind = tool.get("type")
        if not _client_side(api, broker, tool, kind):
            raise Refusal(403, f"tool {str(kind)[:SAID]!r} is not passed on: the provider would carry it out itself")
        _tools(api, broker, tool.get("tools"), depth + 1)


def _client_side(api: Api, broker: bool, tool: Json, kind: object) -> bool:
    """Whether the program carries it out."""
    if kind is None or not isinstance(kind, str):
        return kind is None
    if broker or api == "chat":
        return kind in BROKER_TOOLS
    if api == "anthropic":
        return kind == "custom" or kind.startswith(ANTHROPIC_TOOLS)
    environment = tool.get("environment")
    local = isinstance(environment, dict) and environment.get("type") == "local"
    return kind in OPENAI_TOOLS or (kind == "shell" and local)


def _parts(value: object) -> Iterator[Json]:
    """All objects of a conversation that can hold content, however deep."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, list):
            left += item
        elif isinstance(item, dict):
            yield item
            left += [inner for name, inner in item.items() if plain(name) in CONTENT]


def _part(api: Api, broker: bool, part: Json) -> None:
    kind = part.get("type")
    _tools(api, broker, part.get("tools"))
    if kind == "tool_addition":
        tool = part.get("tool")
        definition = tool.get("definition") if isinstance(tool, dict) else None
        if not isinstance(definition, dict):
            raise Refusal(403, "`tool_addition` is passed on with a tool's definition only")
        _tools(api, broker, [definition])
    referred = api == "responses" and "id" in part and not part.keys() & {"type", "role"}  # its type may be left out
    if referred or kind in ("container_upload", "item_reference"):
        raise Refusal(403, f"{'item_reference' if referred else kind!r} is not passed on: content that lies with the provider")
    for name, value in part.items():
        word = plain(name)
        if word == "fileid" and value:
            raise Refusal(403, f"`{name}` is not passed on: content that lies with the provider")
        linked = word in LINKS or (word == "filedata" and isinstance(value, str) and "://" in value[:64])
        if linked and isinstance(value, str) and value and not value.startswith("data:"):
            raise Refusal(403, f"`{name}` is passed on with data only: the provider would fetch an address")
