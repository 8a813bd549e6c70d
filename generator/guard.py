"""No engine process outlives this one, however this one ends.

vLLM's engine runs in child processes that end when this process closes them. A process that is killed (SIGKILL, the
out-of-memory killer, a plain `kill`) closes nothing, and the engine would go on holding its memory. So a small shell
waits at the other end of a pipe: the pipe ends when this process does, and the shell then ends what it was told of.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import subprocess

# KILL and not TERM: nobody is left to whom a farewell could matter, and a stuck engine would not heed it. The engine's own
# workers end with it.
_SCRIPT = """
pids=
while read -r pid; do pids="$pids $pid"; done
[ -z "$pids" ] || kill -KILL $pids
"""


class Guard:
    """Watches over the engine processes that start after this object is made.

    Args:
        name: How the names of those processes begin, as multiprocessing knows them.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._before = {child.pid for child in multiprocessing.active_children()}
        self._watched: dict[int, multiprocessing.process.BaseProcess] = {}
        # A session of its own, so that the terminal's Ctrl-C or hang-up does not end the guard before its time.
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    def watch_children(self) -> None:
        """Tell the shell of children that are new since the last call."""
        for child in multiprocessing.active_children():
            new = child.pid not in self._before and child.pid not in self._watched
            if new and child.pid is not None and child.name.startswith(self._name):
                self._watched[child.pid] = child
                with contextlib.suppress(OSError):
                    assert self._shell.stdin is not None
                    print(child.pid, file=self._shell.stdin, flush=True)

    def kill(self) -> None:
        """End the watched children that are still there, and the shell."""
        self._shell.kill()
        self._shell.communicate()
        for child in self._watched.values():
            if child.is_alive():
                child.kill()
            child.join(timeout=5)
