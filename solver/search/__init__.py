"""The joint search: best first over configurations, with the incumbent, its proof and the history of both."""
