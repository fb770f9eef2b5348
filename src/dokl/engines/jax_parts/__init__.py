"""Parts of the JAX engine (`jax_engine.py`): tracing, fused kernels, batches of runs."""
