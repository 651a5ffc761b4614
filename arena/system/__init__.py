"""This machine: processes, temporary folders, hardware facts, and where a result came from."""
