"""The command `fedcap`, and `python -m fedcap`: the command line, which Ctrl-C ends without a traceback.

During an import there is nothing to clean up, but C code may ignore an interrupt or raise another exception.
So Ctrl-C during an import ends the process at once.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130


def main() -> None:
    """Run the command line, and end the process."""
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:  # in the background it may be ignored
        signal.signal(signal.SIGINT, _interrupt)
    try:
        from fedcap.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        _leave()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the work is done


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Leave if the command is importing something; otherwise raise `KeyboardInterrupt`."""
    while frame is not None and frame.f_code.co_filename != __file__:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _leave()
        frame = frame.f_back
    raise KeyboardInterrupt


def _leave() -> NoReturn:
    os.write(2, b"fedcap: interrupted\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
