"""Import problems of other benchmarks. Their code runs in a sandbox alone until a person has chosen to judge it."""
