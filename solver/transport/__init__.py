"""The transport plan: routes for every flow, and the transport choice of every communicator on every tier."""
