"""The results of runs: run folders, annotations, baselines, and the leaderboard rendered from them."""
