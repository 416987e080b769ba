//go:build tools

// Package tools names the upstream main packages that this go.mod builds as they are.
package tools

import (
	_ "go.etcd.io/etcd/etcdctl/v3"
	_ "go.etcd.io/etcd/etcdutl/v3"
)
