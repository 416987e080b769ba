"""The demo's load step: asks the sample service for GPU time, watches the autoscaler answer, and judges it."""
