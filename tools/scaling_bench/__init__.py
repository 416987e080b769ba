"""`make bench`: six ways to scale one workload, at the same time on one cluster, on the same load."""
