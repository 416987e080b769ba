"""The demo's load step: requests GPU time from the sample service, watches the autoscaler, and evaluates it."""
