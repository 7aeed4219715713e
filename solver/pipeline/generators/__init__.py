"""Rules that order the operations of a pipeline, one file each, and the list scheduler that many build on."""
