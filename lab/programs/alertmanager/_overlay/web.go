// Package ui without its pages: the module does not have what they are built to.
package ui

import "github.com/prometheus/common/route"

// Register adds no page. The API needs none.
func Register(_ *route.Router) {}
