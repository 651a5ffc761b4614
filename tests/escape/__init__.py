"""The escape suite: every way out that anyone has documented, tried from inside real boxes, and shown to be a real try."""
