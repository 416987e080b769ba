package main

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// gpu is what identifies one, in the exporter's labels.
type gpu struct {
	index                int
	uuid, address, model string
	device               string // nvidiaN
}

// sample is the last reading of a GPU: the printed value by field.
type sample struct {
	gpu
	values map[string]string
}

type sampler struct {
	counters []counter
	gpus     []gpu
	handles  []nvml.Device
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
	s := &sampler{counters: counters, xids: make([]atomic.Uint64, count)}
	for i := range count {
		handle, result := nvml.DeviceGetHandleByIndex(i)
		if result != nvml.SUCCESS {
			return nil, fmt.Errorf("NVML: GPU %d: %v", i, result)
		}
		found, result := describe(i, handle)
		if result != nvml.SUCCESS {
			return nil, fmt.Errorf("NVML: GPU %d: %v", i, result)
		}
		s.gpus = append(s.gpus, found)
		s.handles = append(s.handles, handle)
		s.profiler = append(s.profiler, profilerFor(counters, handle))
	}
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
	return gpu{index: index, uuid: uuid, address: address, model: model, device: fmt.Sprintf("nvidia%d", minor)}, result
}

// every reads all GPUs now and then, so that a scrape only shows what is there.
func (s *sampler) every(interval time.Duration) {
	for range time.Tick(interval) {
		s.sample()
	}
}

func (s *sampler) sample() {
	samples := make([]sample, len(s.gpus))
	for i, handle := range s.handles {
		samples[i] = sample{gpu: s.gpus[i], values: map[string]string{}}
		gpu := device{handle, s.profiler[i].read(handle)}
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
	for i, handle := range s.handles {
		if result := handle.RegisterEvents(nvml.EventTypeXidCriticalError, events); result != nvml.SUCCESS {
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
