// Command dcgm-exporter stands in for NVIDIA's exporter of that name: its metric names, label set and order, counter file, settings
// and pod mapping, but the values come from NVML, since libdcgm is not to be had. It runs on a real GPU as well.
//
// What differs: DCGM_FI_PROF_* are not profiled. GR_ENGINE_ACTIVE and SM_ACTIVE are NVML's GPU utilisation and DRAM_ACTIVE its memory
// utilisation, as ratios; for SM_ACTIVE that is an upper bound. A counter that NVML cannot give is left out of the output, as a blank
// value is upstream. MIG devices are not looked into.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

type settings struct {
	countersFile string
	address      string
	interval     time.Duration
	kubernetes   bool
	virtualGPUs  bool
	kubelet      string // socket of the pod-resources API
	hostname     string
}

func main() {
	wanted, err := readSettings(os.Args[1:])
	if err == nil {
		err = run(wanted)
	}
	if err != nil {
		slog.Error("dcgm-exporter stops", "reason", err)
		os.Exit(1)
	}
}

// readSettings takes each setting from its flag, else from its environment variable, else from its default.
func readSettings(arguments []string) (settings, error) {
	var s settings
	var milliseconds int
	hostname, err := os.Hostname()
	if err != nil {
		return s, err
	}
	s.hostname = env("NODE_NAME", hostname)
	s.kubelet = env("DCGM_POD_RESOURCES_KUBELET_SOCKET", "/var/lib/kubelet/pod-resources/kubelet.sock")

	flags := flag.NewFlagSet("dcgm-exporter", flag.ContinueOnError)
	text := func(value *string, variable, fallback, usage string, names ...string) {
		for _, name := range names {
			flags.StringVar(value, name, env(variable, fallback), usage+" ["+variable+"]")
		}
	}
	text(&s.countersFile, "DCGM_EXPORTER_COLLECTORS", "/etc/dcgm-exporter/default-counters.csv", "file with the counters to export", "f", "collectors")
	text(&s.address, "DCGM_EXPORTER_LISTEN", ":9400", "address to listen on", "a", "address")
	interval, err := strconv.Atoi(env("DCGM_EXPORTER_INTERVAL", "30000"))
	if err != nil {
		return s, fmt.Errorf("DCGM_EXPORTER_INTERVAL: %w", err)
	}
	for _, name := range []string{"c", "collect-interval"} {
		flags.IntVar(&milliseconds, name, interval, "milliseconds between two readings [DCGM_EXPORTER_INTERVAL]")
	}
	inKubernetes, err := strconv.ParseBool(env("DCGM_EXPORTER_KUBERNETES", "false"))
	if err != nil {
		return s, fmt.Errorf("DCGM_EXPORTER_KUBERNETES: %w", err)
	}
	for _, name := range []string{"k", "kubernetes"} {
		flags.BoolVar(&s.kubernetes, name, inKubernetes, "label with the pod that holds the GPU [DCGM_EXPORTER_KUBERNETES]")
	}
	virtual, err := strconv.ParseBool(env("KUBERNETES_VIRTUAL_GPUS", "false"))
	if err != nil {
		return s, fmt.Errorf("KUBERNETES_VIRTUAL_GPUS: %w", err)
	}
	flags.BoolVar(&s.virtualGPUs, "kubernetes-virtual-gpus", virtual, "a line for each pod that shares the GPU [KUBERNETES_VIRTUAL_GPUS]")
	if err := flags.Parse(arguments); err != nil {
		return s, err
	}
	if milliseconds < 1 {
		return s, fmt.Errorf("collect interval is %d ms; it has to be at least 1", milliseconds)
	}
	s.interval = time.Duration(milliseconds) * time.Millisecond
	return s, nil
}

func env(variable, fallback string) string {
	if value, set := os.LookupEnv(variable); set {
		return value
	}
	return fallback
}

func run(s settings) error {
	counters, err := readCounters(s.countersFile)
	if err != nil {
		return err
	}
	if result := nvml.Init(); result != nvml.SUCCESS {
		return fmt.Errorf("driver -> NVML: %v; is the driver loaded, and does this container have its libraries?", result)
	}
	defer nvml.Shutdown()
	gpus, err := newSampler(counters)
	if err != nil {
		return err
	}
	go gpus.every(s.interval)

	pods := func() holders { return nil }
	if s.kubernetes {
		kubelet, err := newKubelet(s.kubelet)
		if err != nil {
			return err
		}
		pods = kubelet.holders
	}

	http.HandleFunc("/health", func(out http.ResponseWriter, _ *http.Request) { fmt.Fprintln(out, "OK") })
	http.HandleFunc("/metrics", func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		write(out, counters, gpus.latest(), pods(), s.hostname, s.virtualGPUs)
	})
	server := &http.Server{Addr: s.address, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		ends := make(chan os.Signal, 1)
		signal.Notify(ends, syscall.SIGTERM, syscall.SIGINT)
		<-ends
		server.Close()
	}()
	slog.Info("dcgm-exporter serves", "address", s.address, "interval", s.interval, "kubernetes", s.kubernetes)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
