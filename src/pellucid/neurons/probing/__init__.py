"""Learning from neurons: probes with their controls, Gaussians and forests."""
