"""The gputask command: files and clusters in, decisions, events and tables out."""
