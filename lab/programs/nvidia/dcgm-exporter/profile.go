package main

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// profile has percentages by metric, between two samples; empty where the GPU is not profiled.
type profile map[nvml.GpmMetricId]float64

var profiledMetrics = []nvml.GpmMetricId{nvml.GPM_METRIC_GRAPHICS_UTIL, nvml.GPM_METRIC_SM_UTIL, nvml.GPM_METRIC_DRAM_BW_UTIL}

// profiler takes the samples of a GPU. The driver's own profiling (GPM) is there from Hopper on; DCGM has more ways.
type profiler struct{ before, now nvml.GpmSample }

// newProfiler is nil for a GPU without GPM.
func newProfiler(handle nvml.Device) *profiler {
	support, result := handle.GpmQueryDeviceSupport()
	if result != nvml.SUCCESS || support.IsSupportedDevice == 0 {
		return nil
	}
	before, first := nvml.GpmSampleAlloc()
	now, second := nvml.GpmSampleAlloc()
	if first != nvml.SUCCESS || second != nvml.SUCCESS || handle.GpmSampleGet(now) != nvml.SUCCESS {
		return nil
	}
	return &profiler{before, now}
}

// read takes a sample, and says what went on since the one before.
func (p *profiler) read(handle nvml.Device) profile {
	if p == nil {
		return nil
	}
	p.before, p.now = p.now, p.before
	wanted := nvml.GpmMetricsGetType{NumMetrics: uint32(len(profiledMetrics)), Sample1: p.before, Sample2: p.now}
	for i, metric := range profiledMetrics {
		wanted.Metrics[i].MetricId = uint32(metric)
	}
	if handle.GpmSampleGet(p.now) != nvml.SUCCESS || nvml.GpmMetricsGet(&wanted) != nvml.SUCCESS {
		return nil
	}
	found := profile{}
	for i, metric := range profiledMetrics {
		if nvml.Return(wanted.Metrics[i].NvmlReturn) == nvml.SUCCESS {
			found[metric] = wanted.Metrics[i].Value
		}
	}
	return found
}
