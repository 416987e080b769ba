// Command argocd is Argo CD's application controller and its repository server, chosen by the name it is called by.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	controller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	reposerver "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
	"github.com/spf13/cobra"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

var servers = map[string]func() *cobra.Command{
	"argocd-application-controller": controller.NewCommand,
	"argocd-repo-server":            reposerver.NewCommand,
}

func main() {
	server, known := servers[filepath.Base(os.Args[0])]
	if !known {
		fmt.Fprintln(os.Stderr, "argocd: call this binary as argocd-application-controller or argocd-repo-server")
		os.Exit(2)
	}
	if server().Execute() != nil {
		os.Exit(1)
	}
}
