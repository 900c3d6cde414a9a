"""The client's only room with sockets: connections, the cluster's metadata, routing, retries."""
