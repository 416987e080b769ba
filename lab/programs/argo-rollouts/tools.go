//go:build tools

// Package tools names the upstream main package that this go.mod builds as it is.
package tools

import _ "github.com/argoproj/argo-rollouts/cmd/rollouts-controller"
