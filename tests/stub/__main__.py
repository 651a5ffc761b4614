"""`python -m tests.stub`: serve the stub until its process ends. Its first line on stdout is the port."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

from aiohttp import web

from .plan import MODES, Plan, turns
from .script import Use
from .server import Server


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.stub", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; 0 finds a free one")
    parser.add_argument("--unix", type=Path, help="listen on this unix socket instead")
    parser.add_argument("--mode", choices=MODES, default="ok")
    parser.add_argument("--key", help="the only key that the stub accepts; without it any")
    parser.add_argument("--solution", type=Path, required=True, help="file whose text the script writes to solution.py")
    parser.add_argument("--check", default="python check.py", help="command of the second turn")
    parser.add_argument("--extra", action="append", default=[], help="a further command beside it (may be given again)")
    parser.add_argument(
        "--use", nargs=2, action="append", default=[], metavar=("TOOL", "JSON"), help="a tool call in a further turn"
    )
    parser.add_argument(
        "--answer",
        action="append",
        default=[],
        type=Path,
        help="file with the text of the next answer to a request without tools",
    )
    parser.add_argument("--thinking", action="store_true", help="answers begin with thinking")
    parser.add_argument("--provider", default="Stub Provider", help="the provider that answers behind the broker")
    parser.add_argument("--no-price", action="store_true", help="the broker does not report what an answer costs")
    parser.add_argument(
        "--crowded", type=int, default=0, metavar="TOKENS", help="input tokens that each answer reports beyond its own"
    )
    parser.add_argument(
        "--length", type=int, default=0, metavar="TURNS", help="of the session; --crowded then begins in its middle"
    )
    parser.add_argument("--log", type=Path, help="append a JSON line for each request and each answer to this file")
    return parser.parse_args()


async def serve(arguments: argparse.Namespace) -> None:
    """Listen, print the port, and serve for ever."""
    uses = [Use(name, json.loads(values)) for name, values in arguments.use]
    script = Plan(
        arguments.mode,
        arguments.key,
        turns(arguments.solution.read_text(), arguments.check, arguments.extra, uses),
        thinking=arguments.thinking,
        provider=arguments.provider,
        price=not arguments.no_price,
        crowded=arguments.crowded,
        length=arguments.length,
        answers=tuple(file.read_text() for file in arguments.answer),
    )
    runner = web.AppRunner(Server(script, arguments.log).app(), access_log=None)
    await runner.setup()
    site = web.UnixSite(runner, str(arguments.unix)) if arguments.unix else web.TCPSite(runner, "127.0.0.1", arguments.port)
    await site.start()
    if arguments.unix:
        arguments.unix.chmod(0o666)
    print(0 if arguments.unix else runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(serve(options()))
