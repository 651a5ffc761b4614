"""What may go out, by interface: names of header fields, fields of a body, and types of parts. Everything else stays inside.

The names are those of the vendors' references in November 2026, without what would act outside the sandbox:

anthropic  https://platform.claude.com/docs/en/api/beta/messages/create
responses  https://developers.openai.com/api/reference/resources/responses
chat       https://platform.openai.com/docs/api-reference/chat/create; thinking and the like: api-docs.deepseek.com,
           docs.z.ai, platform.moonshot.ai, platform.minimax.io, alibabacloud.com/help (Model Studio), docs.vllm.ai
gemini     https://ai.google.dev/api/generate-content
a broker   https://openrouter.ai/docs/api-reference

A route's `allow` adds names for one's own server. Field names are `normalized`.
"""

from __future__ import annotations

from collections.abc import Mapping

from arena.schema import Api

FIELDS: Mapping[Api, frozenset[str]] = {
    "anthropic": frozenset(
        [
            "cachecontrol",
            "compaction",
            "contextmanagement",
            "diagnostics",
            "maxtokens",
            "messages",
            "metadata",
            "model",
            "outputconfig",
            "outputformat",
            "servicetier",
            "speed",
            "stopsequences",
            "stream",
            "system",
            "temperature",
            "thinking",
            "toolchoice",
            "tools",
            "topk",
            "topp",
        ]
    ),
    "responses": frozenset(
        [
            "clientmetadata",
            "contextmanagement",
            "include",
            "input",
            "instructions",
            "maxoutputtokens",
            "maxtoolcalls",
            "metadata",
            "model",
            "paralleltoolcalls",
            "promptcachekey",
            "promptcacheretention",
            "reasoning",
            "safetyidentifier",
            "servicetier",
            "speed",
            "store",
            "stream",
            "streamoptions",
            "temperature",
            "text",
            "toolchoice",
            "tools",
            "toplogprobs",
            "topp",
            "truncation",
            "user",
        ]
    ),
    "chat": frozenset(
        [
            "chattemplatekwargs",
            "dosample",
            "enablethinking",
            "frequencypenalty",
            "logitbias",
            "logprobs",
            "maxcompletiontokens",
            "maxtokens",
            "messages",
            "metadata",
            "minp",
            "model",
            "n",
            "paralleltoolcalls",
            "prediction",
            "presencepenalty",
            "preservethinking",
            "promptcachekey",
            "promptcacheretention",
            "reasoning",
            "reasoningeffort",
            "reasoningsplit",
            "repetitionpenalty",
            "responseformat",
            "safetyidentifier",
            "seed",
            "servicetier",
            "speed",
            "stop",
            "store",
            "stream",
            "streamoptions",
            "temperature",
            "thinking",
            "thinkingbudget",
            "toolchoice",
            "tools",
            "toolstream",
            "topk",
            "toplogprobs",
            "topp",
            "user",
            "verbosity",
        ]
    ),
    "gemini": frozenset(
        [
            "contents",
            "generationconfig",
            "model",
            "safetysettings",
            "servicetier",
            "speed",
            "systeminstruction",
            "toolconfig",
            "tools",
        ]
    ),
}
"""Of a body. `servicetier` and `speed` are checked apart, as they have other prices."""
BROKER_FIELDS = frozenset(["cachecontrol", "includereasoning", "provider", "sessionid", "topa", "trace", "usage"])
"""Of OpenRouter, beside the interface's own."""
COUNT_FIELDS = frozenset({"contents", "model", "generatecontentrequest"})
"""Of Gemini's request to count tokens."""
SETTINGS = frozenset(
    [
        "candidatecount",
        "enableenhancedcivicanswers",
        "frequencypenalty",
        "logprobs",
        "maxoutputtokens",
        "mediaresolution",
        "presencepenalty",
        "responsejsonschema",
        "responselogprobs",
        "responsemimetype",
        "responsemodalities",
        "responseschema",
        "seed",
        "stopsequences",
        "temperature",
        "thinkingconfig",
        "topk",
        "topp",
    ]
)
"""Of Gemini's `generationConfig`."""
PARTS: Mapping[Api, frozenset[str]] = {
    "anthropic": frozenset(
        [
            "base64",
            "compaction",
            "content",
            "custom",
            "document",
            "image",
            "message",
            "redacted_thinking",
            "search_result",
            "server_tool_use",
            "text",
            "thinking",
            "tool_addition",
            "tool_reference",
            "tool_removal",
            "tool_result",
            "tool_search_tool_result",
            "tool_search_tool_search_result",
            "tool_use",
        ]
    ),
    "responses": frozenset(
        [
            "additional_tools",
            "apply_patch_call",
            "apply_patch_call_output",
            "compaction",
            "custom_tool_call",
            "custom_tool_call_output",
            "function_call",
            "function_call_output",
            "input_audio",
            "input_file",
            "input_image",
            "input_text",
            "local_shell_call",
            "local_shell_call_output",
            "message",
            "output_text",
            "reasoning",
            "reasoning_text",
            "refusal",
            "shell_call",
            "shell_call_output",
            "summary_text",
            "text",
            "tool_search_call",
            "tool_search_output",
        ]
    ),
    "chat": frozenset(["file", "image_url", "input_audio", "message", "refusal", "text", "thinking", "video_url"]),
    "gemini": frozenset(),
}
"""Values of `type`."""
GEMINI_PARTS = frozenset(
    [
        "functioncall",
        "functionresponse",
        "id",
        "inlinedata",
        "mediaresolution",
        "name",
        "parts",
        "response",
        "role",
        "scheduling",
        "text",
        "thought",
        "thoughtsignature",
        "videometadata",
        "willcontinue",
    ]
)
"""Names in Gemini's contents and parts, which have no `type`."""
HEADERS = frozenset(
    [
        "accept",
        "accept-language",
        "anthropic-beta",
        "anthropic-dangerous-direct-browser-access",
        "anthropic-version",
        "content-encoding",
        "content-type",
        "conversation_id",
        "http-referer",
        "openai-beta",
        "originator",
        "session-id",
        "session_id",
        "thread-id",
        "user-agent",
        "version",
        "x-app",
        "x-client-request-id",
        "x-goog-api-client",
        "x-openai-internal-codex-responses-lite",
        "x-openai-subagent",
        "x-openrouter-categories",
        "x-openrouter-title",
        "x-parent-session-id",
        "x-request-id",
        "x-session-affinity",
        "x-session-id",
        "x-title",
    ]
)
"""Header fields that the agent CLIs send, and those of the interfaces. None changes the account or the model."""
HEADER_FAMILIES = ("x-stainless-", "x-claude-code-", "x-codex-", "x-msh-")
"""Beginnings of the names by which the vendors' own programs describe themselves."""
