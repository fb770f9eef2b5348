"""Networks of lone learners: what leaves a node, and what a node makes of what it hears."""
