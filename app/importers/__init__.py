"""Other tools' descriptions of a cluster or a model, read strictly into ours."""
