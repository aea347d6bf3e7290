# SPDX-License-Identifier: Apache-2.0
"""`quantrt` for the commands of docs/: each is a fork of one process that has imported everything.

Importing what a build needs takes longer than many commands do. A fork has the words, the folder, the
environment and the standard files of the process that asked for it, and nothing of another command: what it
does to its memory ends with it.

    python command_server.py serve SOCKET           makes SOCKET when it is ready, then runs commands
    python command_server.py run SOCKET WORD ...    one command
"""

import json
import os
import socket
import socketserver
import sys
from pathlib import Path

PRELOADED = ("quantrt.build", "quantrt.cross_build", "openvino", "torch", "triton")
STANDARD_FILES = (0, 1, 2)


def run(path: str, words: list[str]) -> int:
    """Have the server at `path` run `quantrt` with `words` as if it were this process; its exit code."""
    asked = json.dumps({"words": words, "folder": str(Path.cwd()), "environment": dict(os.environ)})
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [b"\0"], STANDARD_FILES)
        server.sendall(asked.encode() + b"\n")
        code = server.makefile().readline()
    return int(code or "70")  # no code from a process that a signal ended


class Command(socketserver.BaseRequestHandler):
    """One command, in the process that was forked for it."""

    def handle(self) -> None:
        from quantrt.cli.main import entry_point

        files = socket.recv_fds(self.request, 1, len(STANDARD_FILES))[1]
        asked = json.loads(self.request.makefile().readline())
        for file, standard in zip(files, STANDARD_FILES, strict=True):
            os.dup2(file, standard)
            os.close(file)
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        sys.argv = ["quantrt", *asked["words"]]
        code = entry_point()
        self.request.sendall(f"{code}\n".encode())


class Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    """A process for each command."""


def serve(path: str) -> None:
    for name in PRELOADED:
        __import__(name)
    with Server(path, Command) as server:
        server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(run(sys.argv[2], sys.argv[3:]))
