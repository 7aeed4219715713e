refused: hosts hold 4 to 8 ranks, torchrun starts the same number on each
