"""The physics of the network: latency, transfer, collectives, balancing, loss, buffers and the link graph.

Knows models only.
"""
