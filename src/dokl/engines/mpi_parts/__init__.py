"""Parts of the MPI engine (`mpi_engine.py`): who has which nodes, what ranks tell others."""
