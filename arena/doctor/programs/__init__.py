"""Programs that the doctor runs outside arena's own interpreter; they import nothing of arena."""
