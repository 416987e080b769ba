package main

import (
	"math"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// profile has percentages by metric, between two samples; empty where the GPU is not profiled.
type profile map[nvml.GpmMetricId]float64

var profiledMetrics = []nvml.GpmMetricId{nvml.GPM_METRIC_GRAPHICS_UTIL, nvml.GPM_METRIC_SM_UTIL, nvml.GPM_METRIC_DRAM_BW_UTIL}

// profiler takes the samples of a GPU. The driver's own profiling (GPM) is there from Hopper on; DCGM has more ways.
type profiler struct{ before, now nvml.GpmSample }

// profilerFor is nil where no counter needs it: a reading costs more than all others of a GPU together.
func profilerFor(counters []counter, of gpu) *profiler {
	if !slices.ContainsFunc(counters, func(c counter) bool { return strings.HasPrefix(c.field, "DCGM_FI_PROF_") }) {
		return nil
	}
	return newProfiler(of)
}

// newProfiler is nil for a GPU that gives no sample. The binding asks for the support of GPM by a version that the library does not know.
func newProfiler(of gpu) *profiler {
	before, first := nvml.GpmSampleAlloc()
	now, second := nvml.GpmSampleAlloc()
	if first != nvml.SUCCESS || second != nvml.SUCCESS || of.profiled(now) != nvml.SUCCESS {
		return nil
	}
	return &profiler{before, now}
}

// profiled takes a sample of a GPU, or of the instance that this is.
func (g gpu) profiled(into nvml.GpmSample) nvml.Return {
	if g.part != nil {
		return g.whole.GpmMigSampleGet(g.instance, into)
	}
	return g.whole.GpmSampleGet(into)
}

// read takes a sample, and says what went on since the one before.
func (p *profiler) read(of gpu) profile {
	if p == nil {
		return nil
	}
	p.before, p.now = p.now, p.before
	if of.profiled(p.now) != nvml.SUCCESS {
		return nil
	}
	found := profile{}
	for _, metric := range profiledMetrics {
		// One at a time: the binding knows another size of what it asks for than the library, and so only where the first one lies.
		wanted := nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: p.before, Sample2: p.now}
		wanted.Metrics[0].MetricId = uint32(metric)
		got := nvml.GpmMetricsGet(&wanted) == nvml.SUCCESS && nvml.Return(wanted.Metrics[0].NvmlReturn) == nvml.SUCCESS
		// Between two samples that are too close, an H100 divides by nothing.
		if value := wanted.Metrics[0].Value; got && !math.IsNaN(value) && !math.IsInf(value, 0) {
			found[metric] = value
		}
	}
	return found
}
