# verdict: crashed
# Cannot be imported.
raise RuntimeError("no such luck")
