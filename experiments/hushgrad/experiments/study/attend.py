"""Runs one module on a machine for as long as somebody at the other end of standard input wants it to run.

    python -m hushgrad.experiments.study.attend [--once] HOME FOLDER MODULE [ARGUMENT ...]

Whoever starts it, over ssh for example, sends a line now and then. Silence, the end of the input or a signal ends the
module: what cannot be reached any more must not run on. The line "kill" is a crash, on purpose. With --once nobody
listens, and the module runs to its own end. Needs nothing but Python, because it comes before everything else.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time

BEAT_SECONDS = 5.0
"""How often whoever started it should send a line."""

SILENCE_SECONDS = 45.0
STOP_SECONDS = 6.0
KILLED = 137
"""The exit code that stands for SIGKILL, as in a shell."""

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main(arguments: list[str]) -> int:
    """Runs the module and returns its exit code, 128 + n for signal n."""
    once = arguments[:1] == ["--once"]
    home, folder, module, *rest = arguments[1:] if once else arguments
    # A configuration is in its file: what the account happens to set is not ours.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HUSHGRAD_")}
    environment = {**kept, **dict.fromkeys(_THREADS, "1"), "HUSHGRAD_HOME": home, "PYTHONUNBUFFERED": "1"}
    os.makedirs(folder, mode=0o700, exist_ok=True)
    command = [sys.executable, "-m", module, *rest]
    if once:
        return subprocess.run(command, cwd=folder, env=environment).returncode
    child = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
    happened: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: happened.put(b"stop"))
    threading.Thread(target=_listen, args=(happened,), daemon=True).start()
    threading.Thread(target=_wait, args=(child, happened), daemon=True).start()
    code = _attend(child, happened)
    return code if code >= 0 else 128 - code


def _listen(happened: "queue.SimpleQueue[bytes]") -> None:
    # Not by sys.stdin: a thread that waits inside a buffered reader makes the interpreter abort when it ends.
    rest = b""
    with contextlib.suppress(OSError):
        while content := os.read(0, 4096):
            *lines, rest = (rest + content).split(b"\n")
            for line in lines:
                happened.put(line.strip())
    happened.put(b"stop")


def _wait(child: "subprocess.Popen[bytes]", happened: "queue.SimpleQueue[bytes]") -> None:
    child.wait()
    happened.put(b"ended")


def _attend(child: "subprocess.Popen[bytes]", happened: "queue.SimpleQueue[bytes]") -> int:
    deadline, stopping = time.monotonic() + SILENCE_SECONDS, False
    while child.poll() is None:
        try:
            word = happened.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            word = b"kill" if stopping else b"stop"
        if word == b"kill":
            child.kill()
            child.wait()
        elif word == b"stop" and not stopping:
            stopping, deadline = True, time.monotonic() + STOP_SECONDS
            child.terminate()
        elif not stopping:
            deadline = time.monotonic() + SILENCE_SECONDS
    # A module that ends because it was told to has not done what it was started for, however it ends.
    code = child.wait()
    return -signal.SIGTERM if stopping and code >= 0 else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
