"""The eigenvalues of WᵀW, of updates and of weights, and the power laws of their tails."""
