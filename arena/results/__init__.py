"""What runs leave behind: run folders, annotations, baselines, and the leaderboard rendered from them."""
