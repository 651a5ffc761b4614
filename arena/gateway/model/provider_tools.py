"""Rules against what a provider would do or fetch by itself, outside the sandbox.

A provider's own tools search the web, run code and call other models. They change from month to month. So the lists here name
the tools that the agent's program carries out itself, and the gateway refuses every other. Field names are compared without case
and underscores, as some providers accept `google_search` and `googleSearch` alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from arena.gateway.config import ModelAccess
from arena.gateway.model.allowed import GEMINI_PARTS, PARTS, SETTINGS
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
ANTHROPIC_TOOLS = ("bash_", "text_editor_", "memory_", "tool_search_tool_")
OPENAI_TOOLS = {"function", "custom", "local_shell", "apply_patch", "tool_search", "namespace"}
BROKER_TOOLS = {"function", "custom", "namespace"}
"""A broker may carry out any other tool itself, even one with the same name."""
STORED = ("container_upload", "item_reference", "file_search_call", "mcp_call")
MEDIA = {"imageurl", "videourl", "audiourl", "inputaudio", "inlinedata", "filedata", "file"}
MEDIA_TYPES = {"image", "document", "image_url", "video_url", "input_audio", "input_image", "input_file", "file"}
"""Parts that hold data, and never where it lies."""
WORDS = {"type", "text", "title", "context", "filename", "name", "detail", "cachecontrol", "citations"}
"""Names in such parts that hold words."""
ADDRESS = re.compile(r"\s*(?!data:)(//|[A-Za-z][A-Za-z0-9+.-]*:)")
DEPTH = 8
"""Of tools inside tools."""
TIERS = ("auto", "default", "standard", "standard_only")
CHOICES = {"auto", "any", "none", "required", "tool", "allowed_tools", "shell"} | OPENAI_TOOLS


def normalized(name: str) -> str:
    """A field's name in the form for comparison."""
    return name.replace("_", "").lower()


def check(access: ModelAccess, body: Json, fields: frozenset[str]) -> None:
    """Refusal 400 or 403 when a name is unknown, or the provider would do or fetch something by itself.

    Args:
        access: the run's interface and route.
        body: the request's body, with `normalized` names.
        fields: names that it may hold, `normalized`.
    """
    for name, what in FORBIDDEN.items():
        if body.get(name):
            raise Refusal(403, f"`{name}` is not allowed: {what}")
    allowed = fields | FORBIDDEN.keys() | {normalized(name) for name in access.route.allow.fields}
    _refuse_unknown("field", body.keys() - allowed, access)
    settings = body.get("generationconfig")
    if access.api == "gemini" and isinstance(settings, dict):
        _refuse_unknown("field `generationConfig`:", {normalized(name) for name in settings} - SETTINGS, access)
    _check_tools(access, body.get("tools"))
    _check_price(body)
    choice = body.get("toolchoice")
    if not isinstance(choice, str | dict | None):
        raise Refusal(400, "`tool_choice` must be a word or an object")
    kind = str(choice.get("type", "auto")) if isinstance(choice, dict) else "auto"
    if kind not in CHOICES:
        raise Refusal(403, f"`tool_choice` {kind[:WORD_CHARS]!r} is not allowed: a tool of the provider")
    for name in CONVERSATIONS & body.keys():
        for part in _parts(body[name]):
            _check_part(access, part)


def _refuse_unknown(what: str, names: Set[str], access: ModelAccess) -> None:
    if names:
        name = min(names)[:WORD_CHARS]
        raise Refusal(
            403,
            f"the {what} {name!r} is not known to be harmless on the interface {access.api!r}; "
            "a route in routes.yaml may list it under `allow`",
        )


def _check_price(body: Json) -> None:
    """Refuse another price, and another speed than other runs have."""
    tier, speed = body.get("servicetier"), body.get("speed")
    if tier is not None and not (isinstance(tier, str) and tier.lower() in TIERS):
        raise Refusal(403, "`service_tier` may be auto, default, standard or standard_only: others have other prices")
    if speed not in (None, "standard"):
        raise Refusal(403, "`speed` is not allowed: it has another price")


def _check_tools(access: ModelAccess, tools: object, depth: int = 0) -> None:
    if not isinstance(tools, list | None):  # Google accepts an object in place of a list
        raise Refusal(400, "`tools` must be a list")
    if depth > DEPTH:
        raise Refusal(400, "tools are nested too deep")
    for tool in tools or ():
        if not isinstance(tool, dict):
            raise Refusal(400, "a tool must be an object")
        if access.api == "gemini":
            if other := [
                name for name in tool if normalized(name) != "functiondeclarations" and name not in access.route.allow.tools
            ]:
                raise Refusal(403, f"tool {other[0][:WORD_CHARS]!r} is not allowed: the provider would carry it out itself")
            continue
        kind = tool.get("type")
        if kind not in access.route.allow.tools and not _runs_in_program(access.api, access.route.broker, tool, kind):
            raise Refusal(403, f"tool {str(kind)[:WORD_CHARS]!r} is not allowed: the provider would carry it out itself")
        _check_tools(access, tool.get("tools"), depth + 1)


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


def _check_part(access: ModelAccess, part: Json) -> None:
    api, kind, more = access.api, part.get("type"), access.route.allow.parts
    if not all(name.isascii() for name in part):
        raise Refusal(400, "a part has a name with characters beyond ASCII, which some providers read as other letters")
    if api == "gemini":
        _refuse_unknown("part", {normalized(name) for name in part} - GEMINI_PARTS - {normalized(name) for name in more}, access)
    elif kind is not None and kind not in (*PARTS[api], *more):
        if kind in STORED:
            raise Refusal(403, f"{kind!r} is not allowed: content stored at the provider")
        _refuse_unknown("part of type", {str(kind)}, access)
    _check_tools(access, part.get("tools"))
    if kind == "tool_addition":
        definition = inner(part, "tool").get("definition")
        if not isinstance(definition, dict):
            raise Refusal(403, "`tool_addition` must hold the tool's definition")
        _check_tools(access, [definition])
    if api == "responses" and "id" in part and not part.keys() & {"type", "role"}:  # the type may be absent
        raise Refusal(403, "'item_reference' is not allowed: content stored at the provider")
    for name, value in part.items():
        word = normalized(name)
        if word == "fileid" and value:
            raise Refusal(403, f"`{name}` is not allowed: content stored at the provider")
        if word in LINKS and isinstance(value, str) and value and not value.startswith("data:"):
            raise Refusal(403, f"`{name}` must hold data: the provider would fetch an address")
        if word in MEDIA or kind in MEDIA_TYPES:
            _check_media(name, value)


def _check_media(name: str, value: object) -> None:
    """Refuse an address among the values of a picture, a sound, a film or a file: they must hold their data."""
    left = [(name, value)]
    while left:
        name, item = left.pop()
        if isinstance(item, str) and normalized(name) not in WORDS and ADDRESS.match(item):
            raise Refusal(403, f"`{name[:WORD_CHARS]}` must hold data: the provider would fetch an address")
        if isinstance(item, dict) and item.get("type") not in ("text", "content"):  # a document's own text
            left += item.items()
        elif isinstance(item, list):
            left += ((name, more) for more in item)
