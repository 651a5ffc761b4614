"""The escape suite: probes try every documented escape in real sandboxes; positive controls show that each probe can open."""
