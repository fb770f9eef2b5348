"""Parts of the JAX engine (`dokl.engines.accelerated`): tracing, fused kernels, batches of runs."""
