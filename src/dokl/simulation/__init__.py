"""Networks simulated: read `diffusion` first, the paper's algorithm on one page.

methods     how samples change a node: `gradient`, `squares`; see `method`
learner     one node that learns row by row
streams     what the nodes see
driver      from seeds to a Trace; an `Executor` says how pieces are run
recording   what can be recorded, by name, and the record of one realization
engines     reference, Numba, JAX and MPI
theory      what can be predicted without running
"""
