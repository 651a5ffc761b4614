"""The ways out of a sandbox: the gateway to the agent's model, and the egress proxy to an allowlist of hosts."""
