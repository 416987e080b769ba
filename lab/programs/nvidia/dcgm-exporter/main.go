// Command dcgm-exporter stands in for NVIDIA's exporter of that name: its metric names, label set and order, counter file, settings
// and pod mapping, but the values come from NVML, since libdcgm is not to be had. It runs on a real GPU as well.
//
// What differs: DCGM_FI_PROF_GR_ENGINE_ACTIVE, SM_ACTIVE and DRAM_ACTIVE are those of the driver's own profiling (NVML's GPM), which only
// GPUs from Hopper on have. A counter that NVML cannot give is left out of the output, as a blank value is upstream. Of a GPU with MIG
// instances only these have lines, as upstream by default: those there at the start. A variable of upstream's that would change the output and is not implemented stops the program.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
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
	podUIDs      bool     // as a label
	idType       string   // how the kubelet calls a GPU: uid or device-name
	resources    []string // that count as GPUs besides nvidia.com/gpu and nvidia.com/mig-*
	kubelet      string   // socket of the pod-resources API
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
	for variable, harmless := range notImplemented {
		if value := env(variable, harmless); value != harmless {
			return s, fmt.Errorf("%s is %q; the lab's exporter has only %q", variable, value, harmless)
		}
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
	for _, option := range []struct {
		value           *bool
		variable, usage string
		names           []string
	}{
		{&s.kubernetes, "DCGM_EXPORTER_KUBERNETES", "label with the pod that holds the GPU", []string{"k", "kubernetes"}},
		{&s.virtualGPUs, "KUBERNETES_VIRTUAL_GPUS", "a line for each pod that shares the GPU", []string{"kubernetes-virtual-gpus"}},
		{&s.podUIDs, "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", "label with the pod's uid", []string{"kubernetes-enable-pod-uid"}},
	} {
		fallback, err := strconv.ParseBool(env(option.variable, "false"))
		if err != nil {
			return s, fmt.Errorf("%s: %w", option.variable, err)
		}
		for _, name := range option.names {
			flags.BoolVar(option.value, name, fallback, option.usage+" ["+option.variable+"]")
		}
	}
	var resources string
	text(&s.idType, "DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE", "uid", "how the kubelet calls a GPU: uid or device-name", "kubernetes-gpu-id-type")
	text(&resources, "NVIDIA_RESOURCE_NAMES", "", "further resources that are GPUs, between commas", "nvidia-resource-names")
	if err := flags.Parse(arguments); err != nil {
		return s, err
	}
	for name := range strings.SplitSeq(resources, ",") {
		if name = strings.TrimSpace(name); name != "" {
			s.resources = append(s.resources, name)
		}
	}
	if milliseconds < 1 {
		return s, fmt.Errorf("collect interval is %d ms; it has to be at least 1", milliseconds)
	}
	s.interval = time.Duration(milliseconds) * time.Millisecond
	return s, nil
}

// notImplemented has upstream's variables that change what /metrics says or how it is served, with the value that changes nothing.
var notImplemented = map[string]string{
	"DCGM_EXPORTER_CONFIGMAP_DATA":                       "none",
	"DCGM_EXPORTER_CPU_DEVICES_STR":                      "f",
	"DCGM_EXPORTER_DEVICES_STR":                          "f",
	"DCGM_EXPORTER_ENABLE_GPU_BIND_UNBIND_WATCH":         "false",
	"DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS":         "false",
	"DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX": "",
	"DCGM_EXPORTER_OTHER_DEVICES_STR":                    "f",
	"DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME":         "false",
	"DCGM_EXPORTER_SYSTEMD_SOCKET":                       "false",
	"DCGM_EXPORTER_USE_OLD_NAMESPACE":                    "false",
	"DCGM_EXPORTER_WEB_CONFIG_FILE":                      "",
	"DCGM_HPC_JOB_MAPPING_DIR":                           "",
	"DCGM_REMOTE_HOSTENGINE_INFO":                        "localhost:5555",
	"KUBERNETES_ENABLE_DRA":                              "false",
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
		pods = (&kubelet{s.kubelet, s.resources, newPodUIDs(s.hostname).uid, instanceOf}).holders
	}

	http.HandleFunc("/health", func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("X-Registry-Available", "true")
		fmt.Fprint(out, "OK")
	})
	http.HandleFunc("/metrics", func(out http.ResponseWriter, _ *http.Request) {
		names := naming{pods(), s.idType, s.podUIDs, s.virtualGPUs, func(gpu sample) usages { return usagesOf(gpus.gpus[gpu.row].processes(), podOfProcess) }}
		var page bytes.Buffer
		if err := write(&page, counters, gpus.latest(), names, s.hostname); err != nil {
			slog.Error("metrics cannot be given", "reason", err)
			http.Error(out, "internal server error", http.StatusInternalServerError)
			return
		}
		out.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		page.WriteTo(out)
	})
	server := &http.Server{Addr: s.address, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
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
