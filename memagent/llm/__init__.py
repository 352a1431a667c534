"""Models behind `ChatModel`: `litellm_model` reaches providers, `wrappers` add behaviours.

Wrappers compose from the outside in, for example
`RetryingModel(BudgetedModel(LiteLLMModel(...)))`, where every attempt counts against
the budget. Nothing is re-exported here, so that importing one module never loads
another.
"""
