package main

import (
	"strings"
	"testing"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

var busy = sample{
	gpu:    gpu{index: 0, uuid: "GPU-1", address: "00000000:10:00.0", model: "NVIDIA L4", device: "nvidia0"},
	values: map[string]string{"DCGM_FI_DEV_GPU_UTIL": "87", "DCGM_FI_DRIVER_VERSION": "580.95.05", xidField: "79"},
}

const identityText = `gpu="0",UUID="GPU-1",pci_bus_id="00000000:10:00.0",device="nvidia0",modelName="NVIDIA L4",Hostname="node-a"`

func TestWrite(t *testing.T) {
	util := counter{"DCGM_FI_DEV_GPU_UTIL", "gauge", "Busy (in %)."}
	owner := holder{namespace: "team-a", pod: "infer-0", container: "main"}
	shared := []holder{{"team-a", "infer-0", "main", "0"}, {"team-a", "infer-1", "main", "2"}}
	for name, test := range map[string]struct {
		counters []counter
		held     []holder
		virtual  bool
		want     []string
	}{
		"idle":             {[]counter{util}, nil, false, []string{`DCGM_FI_DEV_GPU_UTIL{` + identityText + `} 87`}},
		"held":             {[]counter{util}, []holder{owner}, false, []string{`DCGM_FI_DEV_GPU_UTIL{` + identityText + `,container="main",namespace="team-a",pod="infer-0"} 87`}},
		"shared, last one": {[]counter{util}, shared, false, []string{`DCGM_FI_DEV_GPU_UTIL{` + identityText + `,container="main",namespace="team-a",pod="infer-1"} 87`}},
		"shared, each": {[]counter{util}, shared, true, []string{
			`DCGM_FI_DEV_GPU_UTIL{` + identityText + `,container="main",namespace="team-a",pod="infer-0",vgpu="0"} 87`,
			`DCGM_FI_DEV_GPU_UTIL{` + identityText + `,container="main",namespace="team-a",pod="infer-1",vgpu="2"} 87`,
		}},
		"label": {[]counter{util, {"DCGM_FI_DRIVER_VERSION", "label", "Driver"}}, nil, false, []string{`DCGM_FI_DEV_GPU_UTIL{` + identityText + `,DCGM_FI_DRIVER_VERSION="580.95.05"} 87`}},
		"error": {[]counter{{xidField, "gauge", "Last error"}}, []holder{owner}, false, []string{
			xidField + `{` + identityText + `,container="main",err_code="79",err_msg="GPU has fallen off the bus",namespace="team-a",pod="infer-0"} 79`,
		}},
		"blank": {[]counter{{"DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Not there"}}, nil, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			write(&out, test.counters, []sample{busy}, holders{"GPU-1": test.held}, "node-a", test.virtual)
			var lines []string
			for line := range strings.Lines(out.String()) {
				if !strings.HasPrefix(line, "#") {
					lines = append(lines, strings.TrimSuffix(line, "\n"))
				}
			}
			if got, want := strings.Join(lines, "\n"), strings.Join(test.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestRenderEscapes(t *testing.T) {
	if got, want := render([]label{{"a", "x\"\\\n"}, {"b", ""}}), `a="x\"\\\n",b=""`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCollectKnowsOnlyGPUs(t *testing.T) {
	device := func(resource string, ids ...string) *podresources.ContainerDevices {
		return &podresources.ContainerDevices{ResourceName: resource, DeviceIds: ids}
	}
	found := collect([]*podresources.PodResources{{
		Name: "infer-0", Namespace: "team-a",
		Containers: []*podresources.ContainerResources{{Name: "main", Devices: []*podresources.ContainerDevices{device("nvidia.com/gpu", "GPU-1", "GPU-2::3"), device("example.com/nic", "eth1")}}},
	}})
	if len(found) != 2 || found["GPU-2"][0] != (holder{"team-a", "infer-0", "main", "3"}) {
		t.Errorf("got %v", found)
	}
}
