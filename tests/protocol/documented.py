"""The tables of docs/protocol.md, so that what they say is what the model finds."""

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"


def rows() -> dict[str, list[str]]:
    """First cell of each table row -> its other cells."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first: others for first, *others in cells}
