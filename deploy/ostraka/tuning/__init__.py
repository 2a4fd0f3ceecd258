"""`ostraka model tune`: a decoder taught to decide on labelled examples. docs/tuning.md draws it."""
