//go:build tools

// Package tools names the upstream main packages that this go.mod builds as they are.
package tools

import (
	_ "github.com/docker/cli/cmd/docker"
	_ "github.com/moby/moby/v2/cmd/docker-proxy"
	_ "github.com/moby/moby/v2/cmd/dockerd"
)
