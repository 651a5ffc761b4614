"""The egress proxy: lets an agent reach an allowlist of hosts, and logs every request."""
