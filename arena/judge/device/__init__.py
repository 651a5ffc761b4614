"""The device under test: its memory, its state, and what it attains."""
