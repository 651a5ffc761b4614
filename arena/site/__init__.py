"""The results as pages: static files from annotations, baselines, curves and run folders. Nothing here decides a score."""
