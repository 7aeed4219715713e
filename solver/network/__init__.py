"""The physics of the network: latency, transfer, collectives, balancing, loss, buffers and the link graph.

Knows models only. Never sees a request, a job or a schedule.
"""
