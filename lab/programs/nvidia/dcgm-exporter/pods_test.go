package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

func gave(resource string, ids ...string) []*podresources.PodResources {
	device := &podresources.ContainerDevices{ResourceName: resource, DeviceIds: ids}
	return []*podresources.PodResources{{
		Name: "infer-0", Namespace: "team-a",
		Containers: []*podresources.ContainerResources{{Name: "main", Devices: []*podresources.ContainerDevices{device}}},
	}}
}

func testKubelet(socket string, resources ...string) *kubelet {
	instance := func(uuid string) (string, error) {
		if uuid != "MIG-1" {
			return "", errors.New("no such device")
		}
		return "0-7", nil
	}
	return &kubelet{socket, resources, func(namespace, pod string) string { return "uid of " + namespace + "/" + pod }, instance}
}

func TestCollect(t *testing.T) {
	for name, test := range map[string]struct {
		resource, id string
		more         []string // NVIDIA_RESOURCE_NAMES
		device       string   // empty if it is no GPU
		replica      string
	}{
		"whole":            {"nvidia.com/gpu", "GPU-1", nil, "GPU-1", ""},
		"time-sliced":      {"nvidia.com/gpu", "GPU-2::3", nil, "GPU-2", "3"},
		"shared on GKE":    {"nvidia.com/gpu", "nvidia0/vgpu1", nil, "nvidia0", "1"},
		"renamed":          {"nvidia.com/gpu.shared", "GPU-2::3", nil, "", ""},
		"renamed, named":   {"nvidia.com/gpu.shared", "GPU-2::3", []string{"nvidia.com/gpu.shared"}, "GPU-2", "3"},
		"MIG, mixed":       {"nvidia.com/mig-1g.10gb", "MIG-1", nil, "0-7", ""},
		"MIG, single":      {"nvidia.com/gpu", "MIG-1", nil, "0-7", ""},
		"MIG, time-sliced": {"nvidia.com/mig-1g.10gb", "MIG-1::2", nil, "0-7", "2"},
		"MIG, gone":        {"nvidia.com/mig-1g.10gb", "MIG-2", nil, "", ""},
		"of somebody else": {"example.com/nic", "eth1", nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := testKubelet("", test.more...).collect(gave(test.resource, test.id))
			want := holder{"team-a", "infer-0", "main", "uid of team-a/infer-0", test.replica}
			if test.device == "" && len(found) != 0 || test.device != "" && (len(found[test.device]) != 1 || found[test.device][0] != want) {
				t.Errorf("got %v", found)
			}
		})
	}
}

// A real kubelet's socket that nobody answers, and one that is not there, both give no pods and no error.
func TestAKubeletThatIsAway(t *testing.T) {
	folder := t.TempDir()
	left := filepath.Join(folder, "left.sock")
	listener, err := net.Listen("unix", left)
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	listener.Close()
	for _, socket := range []string{left, filepath.Join(folder, "none.sock")} {
		if found := testKubelet(socket).holders(); found != nil {
			t.Errorf("%s: got %v", socket, found)
		}
	}
}

// It is seen by the next scrape after it came back.
func TestAKubeletThatIsBack(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	asked := testKubelet(socket)
	asked.holders()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, &podresources.UnimplementedPodResourcesListerServer{})
	go server.Serve(listener)
	defer server.Stop()
	if _, err := asked.list(); err == nil || !strings.Contains(err.Error(), "not implemented") {
		t.Errorf("got %v, want an answer of the server", err)
	}
}

func TestPodOfProcess(t *testing.T) {
	if found := podOfProcess(uint32(os.Getpid())); found != "" {
		t.Errorf("this process is in pod %s", found)
	}
	path := "12:memory:/kubelet/kubepods/burstable/pod0f0e2c1a_86c6_4f0e_9b7a_2f1f7b9a1c11/4d2f"
	if found := podInPath.FindStringSubmatch(path); found == nil || strings.ReplaceAll(found[1], "_", "-") != "0f0e2c1a-86c6-4f0e-9b7a-2f1f7b9a1c11" {
		t.Errorf("got %v", found)
	}
}
