"""Rules against what a provider would do or fetch by itself, outside the sandbox.

A provider's own tools search the web, run code and call other models. They change from month to month. So the lists here name
the tools that the agent's program carries out itself, and the gateway refuses every other. Field names are compared without case
and underscores, as some providers accept `google_search` and `googleSearch` alike.
"""

from __future__ import annotations

from collections.abc import Iterator

from arena.gateway.model.apis import Json, inner
from arena.gateway.unix_server import Refusal
from arena.schema import Api

WORD_CHARS = 60
"""Of a request's own words, shown in a refusal."""
CONVERSATIONS = {"messages", "input", "system", "instructions", "contents", "systeminstruction"}
CONTENT = {"content", "parts", "output", "source", "imageurl", "videourl", "audiourl", "file", "filedata", "functionresponse"}
"""Names that lead to more content. Not `input`, `args` or `response`: those belong to the agent's own tools."""
LINKS = {"url", "imageurl", "videourl", "audiourl", "fileurl", "fileuri"}
FORBIDDEN = {
    "mcpservers": "tools of other hosts",
    "container": "a machine at the provider",
    "plugins": "plugins of the broker",
    "websearchoptions": "a web search",
    "searchparameters": "a web search",
    "searchoptions": "a web search",
    "enablesearch": "a web search",
    "enablecodeinterpreter": "a machine at the provider",
    "deferredtools": "tools of the broker",
    "stopservertoolswhen": "tools of the broker",
    "models": "other models",
    "fallbacks": "other models",
    "route": "other models",
    "preset": "settings stored at the provider",
    "prompt": "a prompt stored at the provider",
    "background": "an answer to fetch later",
    "previousresponseid": "a conversation stored at the provider",
    "conversation": "a conversation stored at the provider",
    "thread": "a conversation stored at the provider",
    "cachedcontent": "content stored at the provider",
}
FORBIDDEN_SETTINGS = {"routingconfig": "other models", "modelselectionconfig": "other models"}
ANTHROPIC_TOOLS = ("bash_", "text_editor_", "memory_", "tool_search_tool_")
OPENAI_TOOLS = {"function", "custom", "local_shell", "apply_patch", "tool_search", "namespace"}
BROKER_TOOLS = {"function", "custom", "namespace"}
"""A broker may carry out any other tool itself, even one with the same name."""
DEPTH = 8
"""Of tools inside tools."""
TIERS = ("auto", "default", "standard", "standard_only")
CHOICES = {"auto", "any", "none", "required", "tool", "allowed_tools", "shell"} | OPENAI_TOOLS


def normalized(name: str) -> str:
    """A field's name in the form for comparison."""
    return name.replace("_", "").lower()


def check(api: Api, broker: bool, body: Json) -> None:
    """Refusal 403 when the provider would do or fetch something by itself. The body's names are `normalized`."""
    for name, what in FORBIDDEN.items():
        if body.get(name):
            raise Refusal(403, f"`{name}` is not allowed: {what}")
    for name in inner(body, "generationconfig"):
        if normalized(name) in FORBIDDEN_SETTINGS:
            raise Refusal(403, f"`{name}` is not allowed: {FORBIDDEN_SETTINGS[normalized(name)]}")
    _check_tools(api, broker, body.get("tools"))
    _check_price(body)
    choice = body.get("toolchoice")
    if not isinstance(choice, str | dict | None):
        raise Refusal(400, "`tool_choice` must be a word or an object")
    kind = str(choice.get("type", "auto")) if isinstance(choice, dict) else "auto"
    if kind not in CHOICES:
        raise Refusal(403, f"`tool_choice` {kind[:WORD_CHARS]!r} is not allowed: a tool of the provider")
    for name in CONVERSATIONS & body.keys():
        for part in _parts(body[name]):
            _check_part(api, broker, part)


def _check_price(body: Json) -> None:
    """Refuse another price, and another speed than other runs have."""
    tier, speed = body.get("servicetier"), body.get("speed")
    if tier is not None and not (isinstance(tier, str) and tier.lower() in TIERS):
        raise Refusal(403, "`service_tier` may be auto, default, standard or standard_only: others have other prices")
    if speed not in (None, "standard"):
        raise Refusal(403, "`speed` is not allowed: it has another price")


def _check_tools(api: Api, broker: bool, tools: object, depth: int = 0) -> None:
    if not isinstance(tools, list | None):  # Google accepts an object in place of a list
        raise Refusal(400, "`tools` must be a list")
    if depth > DEPTH:
        raise Refusal(400, "tools are nested too deep")
    for tool in tools or ():
        if not isinstance(tool, dict):
            raise Refusal(400, "a tool must be an object")
        if api == "gemini":
            if other := [name for name in tool if normalized(name) != "functiondeclarations"]:
                raise Refusal(403, f"tool {other[0][:WORD_CHARS]!r} is not allowed: the provider would carry it out itself")
            continue
        kind = tool.get("type")
        if not _runs_in_program(api, broker, tool, kind):
            raise Refusal(403, f"tool {str(kind)[:WORD_CHARS]!r} is not allowed: the provider would carry it out itself")
        _check_tools(api, broker, tool.get("tools"), depth + 1)


def _runs_in_program(api: Api, broker: bool, tool: Json, kind: object) -> bool:
    """Whether the agent's program carries out the tool."""
    if kind is None or not isinstance(kind, str):
        return kind is None
    if broker or api == "chat":
        return kind in BROKER_TOOLS
    if api == "anthropic":
        return kind == "custom" or kind.startswith(ANTHROPIC_TOOLS)
    return kind in OPENAI_TOOLS or (kind == "shell" and inner(tool, "environment").get("type") == "local")


def _parts(value: object) -> Iterator[Json]:
    """All objects of a conversation that can hold content, at any depth."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, list):
            left += item
        elif isinstance(item, dict):
            yield item
            left += [more for name, more in item.items() if normalized(name) in CONTENT]


def _check_part(api: Api, broker: bool, part: Json) -> None:
    kind = part.get("type")
    _check_tools(api, broker, part.get("tools"))
    if kind == "tool_addition":
        definition = inner(part, "tool").get("definition")
        if not isinstance(definition, dict):
            raise Refusal(403, "`tool_addition` must hold the tool's definition")
        _check_tools(api, broker, [definition])
    reference = api == "responses" and "id" in part and not part.keys() & {"type", "role"}  # the type may be absent
    if reference or kind in ("container_upload", "item_reference"):
        raise Refusal(403, f"{'item_reference' if reference else kind!r} is not allowed: content stored at the provider")
    for name, value in part.items():
        word = normalized(name)
        if word == "fileid" and value:
            raise Refusal(403, f"`{name}` is not allowed: content stored at the provider")
        linked = word in LINKS or (word == "filedata" and isinstance(value, str) and "://" in value[:64])
        if linked and isinstance(value, str) and value and not value.startswith("data:"):
            raise Refusal(403, f"`{name}` must hold data: the provider would fetch an address")
