"""``python -m gputask``."""

from gputask.cli.main import main

main()
