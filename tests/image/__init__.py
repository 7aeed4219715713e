"""What makes the container image and starts it: docker/Dockerfile and docker/compose.yaml."""
