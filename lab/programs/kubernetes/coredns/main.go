// Command coredns is CoreDNS with the plugins that kubeadm's Corefile names and no others:
// the full set pulls in three cloud SDKs and takes ten times as long to compile.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

// The order in which plugins see a query; the same as upstream's plugin.cfg.
func init() {
	dnsserver.Directives = []string{
		"reload", "ready", "health", "errors", "log", "prometheus", "loadbalance", "cache", "hosts", "kubernetes", "loop", "forward",
	}
}

func main() { coremain.Run() }
