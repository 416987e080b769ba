package main

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// reader gives the current value of a field as it is printed, or false where the GPU has none.
type reader func(device) (string, bool)

// device is a GPU and what profiling has said of it since the reading before. Of a MIG device, `part`, that and the memory are its own, all
// else is what its GPU says. The utilisation of a GPU in MIG mode nobody knows (NVIDIA/dcgm-exporter#50, #257, #430).
type device struct {
	nvml.Device
	part    nvml.Device
	profile profile
}

const mebibyte = 1 << 20

// readers has each field that may stand in a counter file; nil is one that NVML cannot give.
var readers = map[string]reader{
	"DCGM_FI_DEV_GPU_UTIL":      utilisation(func(u nvml.Utilization) string { return fmt.Sprint(u.Gpu) }),
	"DCGM_FI_DEV_MEM_COPY_UTIL": utilisation(func(u nvml.Utilization) string { return fmt.Sprint(u.Memory) }),
	"DCGM_FI_DEV_ENC_UTIL":      codec(device.GetEncoderUtilization),
	"DCGM_FI_DEV_DEC_UTIL":      codec(device.GetDecoderUtilization),

	"DCGM_FI_PROF_GR_ENGINE_ACTIVE":   profiled(nvml.GPM_METRIC_GRAPHICS_UTIL),
	"DCGM_FI_PROF_SM_ACTIVE":          profiled(nvml.GPM_METRIC_SM_UTIL),
	"DCGM_FI_PROF_DRAM_ACTIVE":        profiled(nvml.GPM_METRIC_DRAM_BW_UTIL),
	"DCGM_FI_PROF_SM_OCCUPANCY":       nil,
	"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": nil,
	"DCGM_FI_PROF_PIPE_FP64_ACTIVE":   nil,
	"DCGM_FI_PROF_PIPE_FP32_ACTIVE":   nil,
	"DCGM_FI_PROF_PIPE_FP16_ACTIVE":   nil,
	"DCGM_FI_PROF_PCIE_TX_BYTES":      nil,
	"DCGM_FI_PROF_PCIE_RX_BYTES":      nil,

	"DCGM_FI_DEV_FB_USED":     memory(func(m nvml.Memory_v2) uint64 { return m.Used }),
	"DCGM_FI_DEV_FB_FREE":     memory(func(m nvml.Memory_v2) uint64 { return m.Free }),
	"DCGM_FI_DEV_FB_RESERVED": memory(func(m nvml.Memory_v2) uint64 { return m.Reserved }),

	"DCGM_FI_DEV_SM_CLOCK":  clock(nvml.CLOCK_SM),
	"DCGM_FI_DEV_MEM_CLOCK": clock(nvml.CLOCK_MEM),
	"DCGM_FI_DEV_GPU_TEMP": func(d device) (string, bool) {
		celsius, result := d.GetTemperature(nvml.TEMPERATURE_GPU)
		return fmt.Sprint(celsius), result == nvml.SUCCESS
	},
	"DCGM_FI_DEV_MEMORY_TEMP": nil,
	"DCGM_FI_DEV_POWER_USAGE": func(d device) (string, bool) {
		milliwatts, result := d.GetPowerUsage()
		return fmt.Sprintf("%.6f", float64(milliwatts)/1000), result == nvml.SUCCESS
	},
	"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": func(d device) (string, bool) {
		millijoules, result := d.GetTotalEnergyConsumption()
		return fmt.Sprint(millijoules), result == nvml.SUCCESS
	},

	"DCGM_FI_DEV_XID_ERRORS": nil, // an event, not a reading: the sampler fills it
	"DCGM_FI_DEV_PCIE_REPLAY_COUNTER": func(d device) (string, bool) {
		replays, result := d.GetPcieReplayCounter()
		return fmt.Sprint(replays), result == nvml.SUCCESS
	},
	"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS":   remapped(func(correctable, _ int, _ bool) int { return correctable }),
	"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": remapped(func(_, uncorrectable int, _ bool) int { return uncorrectable }),
	"DCGM_FI_DEV_ROW_REMAP_FAILURE": remapped(func(_, _ int, failed bool) int {
		if failed {
			return 1
		}
		return 0
	}),
	"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": func(d device) (string, bool) {
		errors, result := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
		return fmt.Sprint(errors), result == nvml.SUCCESS
	},
	"DCGM_FI_DEV_THERMAL_VIOLATION": func(d device) (string, bool) {
		violation, result := d.GetViolationStatus(nvml.PERF_POLICY_THERMAL)
		return fmt.Sprint(violation.ViolationTime), result == nvml.SUCCESS
	},
	"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": nil,
	"DCGM_FI_DEV_VGPU_LICENSE_STATUS":    nil,

	"DCGM_FI_DRIVER_VERSION": func(device) (string, bool) {
		version, result := nvml.SystemGetDriverVersion()
		return version, result == nvml.SUCCESS
	},
}

func profiled(metric nvml.GpmMetricId) reader {
	return func(d device) (string, bool) {
		percent, there := d.profile[metric]
		return fmt.Sprintf("%.6f", percent/100), there
	}
}

func utilisation(show func(nvml.Utilization) string) reader {
	return func(d device) (string, bool) {
		rates, result := d.GetUtilizationRates()
		return show(rates), result == nvml.SUCCESS && d.part == nil
	}
}

func codec(read func(device) (uint32, uint32, nvml.Return)) reader {
	return func(d device) (string, bool) {
		percent, _, result := read(d)
		return fmt.Sprint(percent), result == nvml.SUCCESS && d.part == nil
	}
}

func memory(part func(nvml.Memory_v2) uint64) reader {
	return func(d device) (string, bool) {
		of := d.Device
		if d.part != nil {
			of = d.part
		}
		info, result := of.GetMemoryInfo_v2()
		return fmt.Sprint(part(info) / mebibyte), result == nvml.SUCCESS
	}
}

func clock(domain nvml.ClockType) reader {
	return func(d device) (string, bool) {
		megahertz, result := d.GetClockInfo(domain)
		return fmt.Sprint(megahertz), result == nvml.SUCCESS
	}
}

func remapped(part func(correctable, uncorrectable int, failed bool) int) reader {
	return func(d device) (string, bool) {
		correctable, uncorrectable, _, failed, result := d.GetRemappedRows()
		return fmt.Sprint(part(correctable, uncorrectable, failed)), result == nvml.SUCCESS
	}
}
