"""How information flows from token to token, layer by layer: rollout, flow, norms and attribution of attention."""
