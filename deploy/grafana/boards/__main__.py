"""Write the boards' JSON beside this package: ``python -m deploy.grafana.boards``."""

from __future__ import annotations

import json
from pathlib import Path

from deploy.grafana.boards import fleet, node
from deploy.grafana.boards.board import Board

FOLDER = Path(__file__).parents[1]
BOARDS = (node.BOARD, fleet.BOARD)


def path_of(board: Board) -> Path:
    return FOLDER / f"{board.uid}.json"


def text_of(board: Board) -> str:
    return json.dumps(board.json(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for each in BOARDS:
        path_of(each).write_text(text_of(each))
