"""Programs that run in or around a sandbox, outside arena's own interpreter: standard library only, nothing of arena."""
