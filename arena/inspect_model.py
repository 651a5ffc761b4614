"""A model of Inspect that answers with a file: tries a task without a key, a network or a tokenizer.

inspect eval arena/paged_attention --model arena_file/problems/paged_attention/solutions/naive.py -T hardware=cpu
"""

from __future__ import annotations

from pathlib import Path

from inspect_ai.model import ChatMessage, GenerateConfig, ModelAPI, ModelOutput, ModelUsage, modelapi
from inspect_ai.tool import ToolChoice, ToolInfo

from arena.errors import UsageError


@modelapi(name="arena_file")
class FileModel(ModelAPI):  # type: ignore[misc]  # untyped where inspect-ai is not installed
    """Gives the text of a Python file at every turn; its name is the path."""

    def __init__(
        self, model_name: str, base_url: str | None = None, api_key: str | None = None, config: GenerateConfig | None = None
    ) -> None:
        """UsageError when the path names no file."""
        super().__init__(model_name, base_url, api_key, [], config or GenerateConfig())
        if not Path(model_name).is_file():
            raise UsageError(f"arena_file/{model_name}: no such file; write arena_file/ and a path, relative to this folder")

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """The file in a block of Python. It used no tokens: without that number Inspect fetches a tokenizer to estimate it."""
        text = Path(self.model_name).read_text(encoding="utf-8", errors="replace")
        made = ModelOutput.from_content(f"arena_file/{self.model_name}", f"```python\n{text}\n```\n")
        made.usage = ModelUsage()
        return made
