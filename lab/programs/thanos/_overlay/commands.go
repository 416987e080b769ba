package main

import "github.com/thanos-io/thanos/pkg/extkingpin"

// Sidecar and querier are compiled. These commands are left out: most of what they need, no other command does.

func registerCompact(*extkingpin.App)       {}
func registerQueryFrontend(*extkingpin.App) {}
func registerReceive(*extkingpin.App)       {}
func registerRule(*extkingpin.App)          {}
func registerStore(*extkingpin.App)         {}
func registerTools(*extkingpin.App)         {}

// A default of the querier's flags that the receiver declares.
const compressionNone = "none"
