"""Claims and reservations under resourceVersion: the admission protocol, its fences and its recovery.

Comments cite the protocol by line ("protocol line 8"); the lines are in ``docs/protocol.md``, with the races that they
close, and are explored exhaustively by the model in ``tests/protocol``.
"""
