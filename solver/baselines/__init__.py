"""Other ways of planning the same job, under the same evaluator."""
