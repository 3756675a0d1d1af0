//! Deployments (DP-*) and the sequences of section 12.
