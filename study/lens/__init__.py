"""What each layer of a causal language model would predict: the logit lens."""
