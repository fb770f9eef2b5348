"""Simulated networks: run, demo, graph, plan."""
