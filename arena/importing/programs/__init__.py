"""Programs that run inside a sandbox beside the code of a task. Nothing that they report is believed without a check."""
