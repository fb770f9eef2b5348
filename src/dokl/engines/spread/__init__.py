"""Parts of the MPI engine (`dokl.engines.ranks`): who has which nodes, what ranks tell others."""
