#!/opt/venv/bin/python -I
"""`gpu COMMAND...`: wait for a turn on the GPU, run the command there, and end with its exit code.

The command runs in a sandbox of its own with this folder, /workspace, and the variables of this shell. Standard library only.
"""

import base64
import json
import os
import pathlib
import select
import socket
import stat
import sys

PORT = 3129
STDIN_S = 0.5
"""Standard input that says nothing for so long is left out: many agents leave a pipe open that nothing is ever written to."""
MOST_STDIN = 16 << 20
FAILED = 125
"""Exit code when no command was run."""


def given_stdin() -> bytes:
    """What was piped into this command, to its end."""
    fd = sys.stdin.fileno()
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return b""
    whole = b""
    while (whole or select.select([fd], [], [], STDIN_S)[0]) and (chunk := os.read(fd, 1 << 16)):
        whole += chunk
        if len(whole) > MOST_STDIN:
            sys.exit(f"gpu: more than {MOST_STDIN >> 20} MiB on standard input; put it into a file in /workspace")
    return whole


def main() -> int:
    """Ask, and pass on what comes."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__, file=sys.stderr)
        return FAILED
    order = {"argv": sys.argv[1:], "cwd": str(pathlib.Path.cwd()), "env": dict(os.environ)}
    order["stdin"] = base64.b64encode(given_stdin()).decode()
    with socket.create_connection(("127.0.0.1", PORT)) as connection, connection.makefile("rb") as answers:
        connection.sendall(json.dumps(order).encode() + b"\n")
        for line in answers:
            answer = json.loads(line)
            if "exit" in answer:
                return int(answer["exit"])
            if "note" in answer:
                print("gpu:", answer["note"], file=sys.stderr, flush=True)
            for name, stream in (("out", sys.stdout), ("err", sys.stderr)):
                if name in answer:
                    stream.buffer.write(base64.b64decode(answer[name]))
                    stream.flush()
    print("gpu: the session is over", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        sys.exit(141)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        sys.exit(f"gpu: no turn on the GPU can be had: {error}")
