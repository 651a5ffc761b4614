"""The model gateway: forwards an agent's requests to its one model, checks them, and keeps the ledger."""
