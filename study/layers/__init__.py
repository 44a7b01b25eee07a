"""How a network's states change from layer to layer, and what tells the layers apart."""
