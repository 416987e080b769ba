package main

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// gpu is what identifies one, or an instance of one, in the exporter's labels.
type gpu struct {
	row, index           int
	uuid, address, model string
	device               string // nvidiaN
	profile              string // of an instance: 1g.10gb; else empty
	instance             int
	whole, part          nvml.Device // part is nil for a whole GPU
}

// processes are asked of the instance, where it is one.
func (g gpu) processes() nvml.Device {
	if g.part != nil {
		return g.part
	}
	return g.whole
}

// sample is the last reading of a GPU: the printed value by field.
type sample struct {
	gpu
	values map[string]string
}

type sampler struct {
	counters []counter
	gpus     []gpu
	profiler []*profiler
	xids     []atomic.Uint64 // the last error a GPU

	mutex   sync.Mutex
	samples []sample
}

func newSampler(counters []counter) (*sampler, error) {
	count, result := nvml.DeviceGetCount()
	if result != nvml.SUCCESS {
		return nil, fmt.Errorf("NVML: no device count: %v", result)
	}
	s := &sampler{counters: counters}
	for i := range count {
		handle, result := nvml.DeviceGetHandleByIndex(i)
		if result != nvml.SUCCESS {
			return nil, fmt.Errorf("NVML: GPU %d: %v", i, result)
		}
		found, result := describe(i, handle)
		if result != nvml.SUCCESS {
			return nil, fmt.Errorf("NVML: GPU %d: %v", i, result)
		}
		instances, result := instancesOf(found)
		if result != nvml.SUCCESS {
			return nil, fmt.Errorf("NVML: MIG devices of GPU %d: %v", i, result)
		}
		if len(instances) == 0 {
			instances = []gpu{found}
		}
		for _, row := range instances {
			row.row = len(s.gpus)
			s.gpus = append(s.gpus, row)
			s.profiler = append(s.profiler, profilerFor(counters, row))
		}
	}
	s.xids = make([]atomic.Uint64, len(s.gpus))
	s.sample()
	go s.watchErrors()
	return s, nil
}

func describe(index int, handle nvml.Device) (gpu, nvml.Return) {
	uuid, result := handle.GetUUID()
	if result != nvml.SUCCESS {
		return gpu{}, result
	}
	model, result := handle.GetName()
	if result != nvml.SUCCESS {
		return gpu{}, result
	}
	minor, result := handle.GetMinorNumber()
	if result != nvml.SUCCESS {
		return gpu{}, result
	}
	pci, result := handle.GetPciInfo()
	if result != nvml.SUCCESS {
		return gpu{}, result
	}
	address := fmt.Sprintf("%08X:%02X:%02X.0", pci.Domain, pci.Bus, pci.Device)
	return gpu{index: index, uuid: uuid, address: address, model: model, device: fmt.Sprintf("nvidia%d", minor), whole: handle}, result
}

// instancesOf has the MIG devices of a GPU. The name of one ends with its profile.
func instancesOf(whole gpu) ([]gpu, nvml.Return) {
	most, result := whole.whole.GetMaxMigDeviceCount()
	if result == nvml.ERROR_NOT_SUPPORTED {
		return nil, nvml.SUCCESS
	}
	if result != nvml.SUCCESS {
		return nil, result
	}
	var found []gpu
	for i := range most {
		part, result := whole.whole.GetMigDeviceHandleByIndex(i)
		if result == nvml.ERROR_NOT_FOUND || result == nvml.ERROR_INVALID_ARGUMENT {
			continue
		}
		if result != nvml.SUCCESS {
			return nil, result
		}
		name, result := part.GetName()
		if result != nvml.SUCCESS {
			return nil, result
		}
		id, result := part.GetGpuInstanceId()
		if result != nvml.SUCCESS {
			return nil, result
		}
		instance := whole
		_, instance.profile, _ = strings.Cut(name, " MIG ")
		instance.instance, instance.part = id, part
		found = append(found, instance)
	}
	return found, nvml.SUCCESS
}

// instanceOf says of a MIG device, as the kubelet calls it, what deviceID says of it.
func instanceOf(uuid string) (string, error) {
	part, result := nvml.DeviceGetHandleByUUID(uuid)
	if result != nvml.SUCCESS {
		return "", fmt.Errorf("NVML: %s: %v", uuid, result)
	}
	whole, result := part.GetDeviceHandleFromMigDeviceHandle()
	if result != nvml.SUCCESS {
		return "", fmt.Errorf("NVML: GPU of %s: %v", uuid, result)
	}
	index, result := whole.GetIndex()
	if result != nvml.SUCCESS {
		return "", fmt.Errorf("NVML: GPU of %s: %v", uuid, result)
	}
	id, result := part.GetGpuInstanceId()
	if result != nvml.SUCCESS {
		return "", fmt.Errorf("NVML: instance of %s: %v", uuid, result)
	}
	return instanceID(index, id), nil
}

func instanceID(gpu, instance int) string { return fmt.Sprintf("%d-%d", gpu, instance) }

// every reads all GPUs now and then, so that a scrape only shows what is there.
func (s *sampler) every(interval time.Duration) {
	for range time.Tick(interval) {
		s.sample()
	}
}

func (s *sampler) sample() {
	samples := make([]sample, len(s.gpus))
	for i, gpu := range s.gpus {
		samples[i] = sample{gpu: gpu, values: map[string]string{}}
		gpu := device{gpu.whole, gpu.part, s.profiler[i].read(gpu)}
		for _, wanted := range s.counters {
			if read := readers[wanted.field]; read != nil {
				if value, there := read(gpu); there {
					samples[i].values[wanted.field] = value
				}
			}
		}
		samples[i].values[xidField] = fmt.Sprint(s.xids[i].Load())
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.samples = samples
}

func (s *sampler) latest() []sample {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.samples
}

// watchErrors keeps each GPU's last XID. A GPU that reports no events shows none.
func (s *sampler) watchErrors() {
	events, result := nvml.EventSetCreate()
	if result != nvml.SUCCESS {
		slog.Warn("NVML gives no error events", "reason", result)
		return
	}
	for i, gpu := range s.gpus {
		if result := gpu.whole.RegisterEvents(nvml.EventTypeXidCriticalError, events); result != nvml.SUCCESS {
			slog.Warn("GPU gives no error events", "gpu", i, "reason", result)
		}
	}
	for {
		event, result := events.Wait(5000)
		if result == nvml.ERROR_TIMEOUT {
			continue
		}
		if result != nvml.SUCCESS {
			slog.Warn("NVML stopped giving error events", "reason", result)
			return
		}
		uuid, _ := event.Device.GetUUID()
		for i, known := range s.gpus {
			if known.uuid == uuid {
				s.xids[i].Store(event.EventData)
			}
		}
	}
}
