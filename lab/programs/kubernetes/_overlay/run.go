// Beside prometheus-adapter's own main: since 1.31 the library that it is built on takes a context to run by.
package main

import "k8s.io/apimachinery/pkg/util/wait"

func (cmd *PrometheusAdapter) Run(stop <-chan struct{}) error {
	return cmd.AdapterBase.Run(wait.ContextForChannel(stop))
}
