package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// holder is a container that was given a device; replica is its part of a shared one, else empty.
type holder struct{ namespace, pod, container, uid, replica string }

// holders has the containers that hold a device, by its id, in the kubelet's order; nil where the kubelet does not say.
type holders map[string][]holder

const kubeletTimeout = 10 * time.Second

type kubelet struct {
	socket    string
	resources []string // that count as GPUs besides nvidia.com/gpu and nvidia.com/mig-*
	uid       func(namespace, pod string) string
	instance  func(uuid string) (string, error) // of a MIG device: as deviceID calls it
}

// holders asks the kubelet, by a new connection each time. Since 4.5.3 upstream serves its metrics without pods while it does not
// answer; before, /metrics was an error then. A socket that is not there never was one.
func (k *kubelet) holders() holders {
	if _, err := os.Stat(k.socket); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	pods, err := k.list()
	if err != nil {
		slog.Warn("kubelet -> exporter: no pods in the labels", "reason", err)
		return nil
	}
	return k.collect(pods)
}

func (k *kubelet) list() ([]*podresources.PodResources, error) {
	connection, err := grpc.NewClient("unix://"+k.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	deadline, cancel := context.WithTimeout(context.Background(), kubeletTimeout)
	defer cancel()
	listed, err := podresources.NewPodResourcesListerClient(connection).List(deadline, &podresources.ListPodResourcesRequest{})
	return listed.GetPodResources(), err
}

func (k *kubelet) collect(pods []*podresources.PodResources) holders {
	found := holders{}
	for _, pod := range pods {
		for _, container := range pod.GetContainers() {
			for _, device := range container.GetDevices() {
				if !k.isGPU(device.GetResourceName()) {
					continue
				}
				for _, id := range device.GetDeviceIds() {
					whole, replica := parts(id)
					if strings.HasPrefix(whole, "MIG-") {
						instance, err := k.instance(whole)
						if err != nil {
							slog.Debug("a MIG device is not known", "reason", err)
							continue
						}
						whole = instance
					}
					holder := holder{pod.GetNamespace(), pod.GetName(), container.GetName(), k.uid(pod.GetNamespace(), pod.GetName()), replica}
					found[whole] = append(found[whole], holder)
				}
			}
		}
	}
	return found
}

// isGPU: a resource that the device plugin renamed, as time-slicing does it to nvidia.com/gpu.shared, counts only if it is named.
func (k *kubelet) isGPU(resource string) bool {
	return resource == "nvidia.com/gpu" || strings.HasPrefix(resource, "nvidia.com/mig-") || slices.Contains(k.resources, resource)
}

// parts splits the id of a shared device: NVIDIA's plugin joins device and replica by `::`, GKE's by `/vgpu`.
func parts(id string) (device, replica string) {
	for _, separator := range []string{"/vgpu", "::"} {
		if device, replica, shared := strings.Cut(id, separator); shared {
			return device, replica
		}
	}
	return id, ""
}

// deviceID says how a GPU is called in what the kubelet lists, and a MIG device by its GPU and its instance.
func deviceID(idType string, g gpu) (string, error) {
	if g.profile != "" {
		return instanceID(g.index, g.instance), nil
	}
	switch idType {
	case "uid":
		return g.uuid, nil
	case "device-name":
		return g.device, nil
	}
	return "", fmt.Errorf("DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE is %q; it has to be uid or device-name", idType)
}
