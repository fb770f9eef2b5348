"""Live networks: descriptions, agents as processes, what they have learned."""
