// Command redis serves what Argo CD's programs share, as a Redis does: for tests, in memory.
package main

import (
	"fmt"
	"os"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "redis: call it with the address to listen on")
		os.Exit(2)
	}
	if err := miniredis.NewMiniRedis().StartAddr(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "redis:", err)
		os.Exit(1)
	}
	select {}
}
