package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"
)

// The kubelet's list has no uids: they come from the cluster, if the pod was given a token and the right to list pods.
const (
	account     = "/var/run/secrets/kubernetes.io/serviceaccount/"
	askNotAgain = time.Second // after a pod was not found
)

type podUIDs struct {
	node  string
	mutex sync.Mutex
	known map[string]string // by namespace/pod
	asked time.Time
	list  func(node string) (map[string]string, error)
}

// newPodUIDs gives none where there is no token.
func newPodUIDs(node string) *podUIDs {
	uids := &podUIDs{node: node, list: listPods}
	if _, err := os.Stat(account + "token"); err != nil {
		slog.Warn("API server -> exporter: uids of pods are not available", "reason", err)
		uids.list = func(string) (map[string]string, error) { return nil, nil }
	}
	return uids
}

// uid of a pod of the node, empty if the cluster does not say. A pod of the same name may have another one later: what is known is
// asked for again as soon as it is older than a scrape or two.
func (u *podUIDs) uid(namespace, pod string) string {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	if time.Since(u.asked) > askNotAgain {
		found, err := u.list(u.node)
		if err != nil {
			slog.Warn("API server -> exporter: no uids of pods", "reason", err)
		}
		u.known, u.asked = found, time.Now()
	}
	return u.known[namespace+"/"+pod]
}

func listPods(node string) (map[string]string, error) {
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}
	defer transport.CloseIdleConnections()
	address := fmt.Sprintf("https://%s:%s/api/v1/pods?fieldSelector=%s", os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"),
		url.QueryEscape("spec.nodeName="+node))
	request, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	answer, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET /api/v1/pods: %s", answer.Status)
	}
	var pods struct {
		Items []struct {
			Metadata struct{ Namespace, Name, UID string }
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&pods); err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, pod := range pods.Items {
		found[pod.Metadata.Namespace+"/"+pod.Metadata.Name] = pod.Metadata.UID
	}
	return found, nil
}
