package main

import (
	"strings"
	"testing"
)

var busy = sample{
	gpu:    gpu{index: 0, uuid: "GPU-1", address: "00000000:10:00.0", model: "NVIDIA L4", device: "nvidia0"},
	values: map[string]string{"DCGM_FI_DEV_GPU_UTIL": "87", "DCGM_FI_DEV_POWER_USAGE": "31.500000", "DCGM_FI_DRIVER_VERSION": "580.95.05", xidField: "79"},
}

const identityText = `gpu="0",UUID="GPU-1",pci_bus_id="00000000:10:00.0",device="nvidia0",modelName="NVIDIA L4",hostname="node-a"`

func TestWrite(t *testing.T) {
	util := counter{"DCGM_FI_DEV_GPU_UTIL", "gauge", "Busy (in %)."}
	power := counter{"DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W)."}
	owner := holder{namespace: "team-a", pod: "infer-0", container: "main", uid: "u0"}
	shared := []holder{{"team-a", "infer-0", "main", "u0", "0"}, {"team-a", "infer-1", "main", "u1", "2"}}
	unknown := []holder{{"team-a", "infer-0", "main", "", "0"}}
	uses := usages{"u0": {percent: 60, bytes: 300 * mebibyte}}
	for name, test := range map[string]struct {
		counters []counter
		held     []holder
		names    naming
		want     []string
	}{
		"idle":                    {[]counter{util}, nil, naming{}, []string{`DCGM_FI_DEV_GPU_UTIL{` + identityText + `} 87`}},
		"idle, with virtual GPUs": {[]counter{util}, nil, naming{virtual: true}, []string{`DCGM_FI_DEV_GPU_UTIL{` + identityText + `} 87`}},
		"held":                    {[]counter{util}, []holder{owner}, naming{}, []string{`DCGM_FI_DEV_GPU_UTIL{` + identityText + `,container="main",namespace="team-a",pod="infer-0"} 87`}},
		"held, with uid":          {[]counter{util}, []holder{owner}, naming{uids: true}, []string{`DCGM_FI_DEV_GPU_UTIL{` + identityText + `,container="main",namespace="team-a",pod="infer-0",pod_uid="u0"} 87`}},
		"shared, last one":        {[]counter{util}, shared, naming{}, []string{`DCGM_FI_DEV_GPU_UTIL{` + identityText + `,container="main",namespace="team-a",pod="infer-1"} 87`}},
		"shared, each repeats": {[]counter{power}, shared, naming{virtual: true}, []string{
			`DCGM_FI_DEV_POWER_USAGE{` + identityText + `,container="main",namespace="team-a",pod="infer-0",vgpu="0"} 31.500000`,
			`DCGM_FI_DEV_POWER_USAGE{` + identityText + `,container="main",namespace="team-a",pod="infer-1",vgpu="2"} 31.500000`,
		}},
		"shared, each has its own": {[]counter{util}, shared, naming{virtual: true}, []string{
			`DCGM_FI_DEV_GPU_UTIL{` + identityText + `} 87`,
			`DCGM_FI_DEV_GPU_UTIL{` + identityText + `,container="main",namespace="team-a",pod="infer-0",pod_uid="u0",vgpu="0"} 60`,
			`DCGM_FI_DEV_GPU_UTIL{` + identityText + `,container="main",namespace="team-a",pod="infer-1",pod_uid="u1",vgpu="2"} 0`,
		}},
		"shared, uids not known": {[]counter{util}, unknown, naming{virtual: true}, []string{
			`DCGM_FI_DEV_GPU_UTIL{` + identityText + `} 87`,
			`DCGM_FI_DEV_GPU_UTIL{` + identityText + `,container="main",namespace="team-a",pod="infer-0",pod_uid="",vgpu="0"} 0`,
		}},
		"label": {[]counter{util, {"DCGM_FI_DRIVER_VERSION", "label", "Driver"}}, nil, naming{}, []string{`DCGM_FI_DEV_GPU_UTIL{` + identityText + `,DCGM_FI_DRIVER_VERSION="580.95.05"} 87`}},
		"error": {[]counter{{xidField, "gauge", "Last error"}}, []holder{owner}, naming{}, []string{
			xidField + `{` + identityText + `,container="main",err_code="79",err_msg="GPU has fallen off the bus",namespace="team-a",pod="infer-0"} 79`,
		}},
		"blank":        {[]counter{{"DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Not there"}}, nil, naming{}, nil},
		"by its name":  {[]counter{util}, nil, naming{idType: "device-name", pods: holders{"nvidia0": {owner}}}, []string{`DCGM_FI_DEV_GPU_UTIL{` + identityText + `,container="main",namespace="team-a",pod="infer-0"} 87`}},
		"by its other": {[]counter{util}, nil, naming{idType: "device-name", pods: holders{"GPU-1": {owner}}}, []string{`DCGM_FI_DEV_GPU_UTIL{` + identityText + `} 87`}},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if test.names.idType == "" {
				test.names.idType, test.names.pods = "uid", holders{"GPU-1": test.held}
			}
			test.names.usages = func(sample) usages { return uses }
			if err := write(&out, test.counters, []sample{busy}, test.names, "node-a"); err != nil {
				t.Fatal(err)
			}
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

// The labels and their order are those of NVIDIA/dcgm-exporter#512. The kubelet's id of the device is that of its GPU and instance.
func TestInstancesOfOneGPU(t *testing.T) {
	part := func(row, instance int, active string) sample {
		of := gpu{row: row, index: 0, uuid: "GPU-1", address: "00000000:10:00.0", model: "NVIDIA H100 80GB HBM3", device: "nvidia0", profile: "1g.10gb", instance: instance}
		return sample{gpu: of, values: map[string]string{"DCGM_FI_PROF_GR_ENGINE_ACTIVE": active}}
	}
	owner := holder{namespace: "team-a", pod: "infer-0", container: "main"}
	names := naming{idType: "uid", pods: holders{"0-8": {owner}}}
	var out strings.Builder
	samples := []sample{part(0, 7, "0.000000"), part(1, 8, "0.600000")}
	if err := write(&out, []counter{{"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Active"}}, samples, names, "node-a"); err != nil {
		t.Fatal(err)
	}
	head := `DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-1",pci_bus_id="00000000:10:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",GPU_I_PROFILE="1g.10gb",`
	want := "# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Active\n# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge\n" +
		head + `GPU_I_ID="7",hostname="node-a"} 0.000000` + "\n" +
		head + `GPU_I_ID="8",hostname="node-a",container="main",namespace="team-a",pod="infer-0"} 0.600000` + "\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestRenderEscapes(t *testing.T) {
	if got, want := render([]label{{"a", "x\"\\\n"}, {"b", ""}}), `a="x\"\\\n",b=""`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAnUnknownKindOfIDIsAnErrorOfTheScrape(t *testing.T) {
	if err := write(&strings.Builder{}, nil, []sample{busy}, naming{idType: "index", pods: holders{}}, "node-a"); err == nil {
		t.Error("no error")
	}
}
