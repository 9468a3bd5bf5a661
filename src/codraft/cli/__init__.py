"""One module per verb, each a thin call into the library. Heavy imports live inside the verbs."""
