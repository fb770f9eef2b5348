"""Networks of least squares: what nodes come to know together, beside one place with all rows.

banks      nodes that are learners that also learn from others, by rows and by sums, beside single
learners and
           one place that knows the node
many       two thousand nodes of twenty rows
faulty     nodes that share rows, some of them faulty
kin40k     ten nodes on a slow graph, rows dealt out or sorted by an input: sums, vectors, alone
examples   Examples 1 and 2 of the paper in modes, after a few hundred rows per node
published  tom, energy, twitter with five agents, beside published figures
scale      100,000 nodes: one exchange's time and memory
"""
