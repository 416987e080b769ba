package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// holder is a container that was given a GPU; replica is its part of a time-sliced one, else empty.
type holder struct{ namespace, pod, container, replica string }

// holders has the containers that hold a GPU, by its UUID, in the kubelet's order.
type holders map[string][]holder

type kubelet struct {
	client podresources.PodResourcesListerClient
}

func newKubelet(socket string) (*kubelet, error) {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &kubelet{podresources.NewPodResourcesListerClient(connection)}, nil
}

// holders asks the kubelet. As upstream, metrics go without pods while it does not answer.
func (k *kubelet) holders() holders {
	deadline, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	listed, err := k.client.List(deadline, &podresources.ListPodResourcesRequest{})
	if err != nil {
		slog.Warn("kubelet -> exporter: no pods in the labels", "reason", err)
		return nil
	}
	return collect(listed.GetPodResources())
}

func collect(pods []*podresources.PodResources) holders {
	found := holders{}
	for _, pod := range pods {
		for _, container := range pod.GetContainers() {
			for _, device := range container.GetDevices() {
				if device.GetResourceName() != "nvidia.com/gpu" && device.GetResourceName() != "nvidia.com/gpu.shared" {
					continue
				}
				for _, id := range device.GetDeviceIds() {
					uuid, replica, _ := strings.Cut(id, "::")
					found[uuid] = append(found[uuid], holder{pod.GetNamespace(), pod.GetName(), container.GetName(), replica})
				}
			}
		}
	}
	return found
}
