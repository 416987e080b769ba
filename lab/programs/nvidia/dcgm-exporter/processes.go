package main

import (
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// With virtual GPUs these two are also given for each pod on a GPU, from the processes that the driver knows.
const (
	utilField   = "DCGM_FI_DEV_GPU_UTIL"
	memoryField = "DCGM_FI_DEV_FB_USED"
)

// usage is what the processes of a pod take of a GPU, added up: percent and bytes.
type usage struct{ percent, bytes uint64 }

// usages by uid of the pod. Without the host's process ids, or without uids, no process is of any pod.
type usages map[string]usage

func (u usages) value(field, uid string) string {
	if field == utilField {
		return fmt.Sprint(u[uid].percent)
	}
	return fmt.Sprint(u[uid].bytes / mebibyte)
}

// window is what a process' utilisation is of. The driver keeps samples for many seconds, also of a process that is idle since.
const window = time.Second

// usagesOf reads the processes on a GPU. A driver that knows none says so by an error.
func usagesOf(device nvml.Device, podOf func(pid uint32) string) usages {
	found := usages{}
	add := func(pid uint32, more usage) {
		if uid := podOf(pid); uid != "" {
			found[uid] = usage{found[uid].percent + more.percent, found[uid].bytes + more.bytes}
		}
	}
	running, result := device.GetComputeRunningProcesses()
	if result != nvml.SUCCESS {
		slog.Debug("NVML lists no processes", "reason", result)
	}
	for _, process := range running {
		add(process.Pid, usage{bytes: process.UsedGpuMemory})
	}
	samples, result := device.GetProcessUtilization(uint64(time.Now().Add(-window).UnixMicro()))
	if result != nvml.SUCCESS {
		slog.Debug("NVML has no utilisation of processes", "reason", result)
	}
	percent := map[uint32]uint64{}
	for _, sample := range samples {
		percent[sample.Pid] = uint64(sample.SmUtil) // the last sample of several
	}
	for pid, used := range percent {
		add(pid, usage{percent: used})
	}
	return found
}

var podInPath = regexp.MustCompile(`pod([a-f0-9_-]+)`)

// podOfProcess finds the uid of a process' pod in the names of its control groups; empty if it is in none.
func podOfProcess(pid uint32) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if found := podInPath.FindStringSubmatch(line); found != nil && len(found[1]) >= 32 {
			return strings.ReplaceAll(found[1], "_", "-")
		}
	}
	return ""
}
