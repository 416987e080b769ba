//go:build tools

// Package tools names the upstream main package that this go.mod builds as it is.
package tools

import _ "github.com/traefik/traefik/v3/cmd/traefik"
