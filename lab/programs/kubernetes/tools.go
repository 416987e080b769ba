//go:build tools

// Package tools names the upstream main packages that this go.mod builds as they are.
package tools

import (
	_ "github.com/prometheus-operator/prometheus-operator/cmd/operator"
	_ "github.com/prometheus-operator/prometheus-operator/cmd/prometheus-config-reloader"
	_ "go.etcd.io/etcd/server/v3"
	_ "helm.sh/helm/v3/cmd/helm"
	_ "k8s.io/kube-state-metrics/v2"
	_ "sigs.k8s.io/controller-tools/cmd/controller-gen"
)
