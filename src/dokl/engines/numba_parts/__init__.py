"""Parts of the Numba engine (`numba_engine.py`): fused loops, sweeps over nodes, projections."""
