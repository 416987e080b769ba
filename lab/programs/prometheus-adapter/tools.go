//go:build tools

// Package tools names the upstream main package that this go.mod builds as it is.
// The adapter stands alone: its last release is from k8s.io 0.30 and does not compile against what the others share.
package tools

import _ "sigs.k8s.io/prometheus-adapter/cmd/adapter"
