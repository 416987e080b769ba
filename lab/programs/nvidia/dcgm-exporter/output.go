package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

const xidField = "DCGM_FI_DEV_XID_ERRORS"

// Meanings of the errors that are seen most, from NVIDIA's table of XIDs.
var xidMeanings = map[string]string{
	"0":  "No Error",
	"13": "Graphics Engine Exception",
	"31": "GPU memory page fault",
	"43": "GPU stopped processing",
	"48": "Double Bit ECC Error",
	"63": "Row remapping recording event",
	"74": "NVLINK Error",
	"79": "GPU has fallen off the bus",
	"94": "Contained ECC error",
	"95": "Uncontained ECC error",
}

type label struct{ name, value string }

// naming says how pods are put into the labels.
type naming struct {
	pods    holders
	idType  string
	uids    bool // as a label
	virtual bool // a line for each pod that shares a GPU
	usages  func(sample) usages
}

// line is a value and the labels that follow those of the GPU.
type line struct {
	labels []label
	value  string
}

// write prints all counters in Prometheus' text format: a line a GPU, or one a sharing pod with virtual GPUs.
func write(out io.Writer, counters []counter, samples []sample, names naming, hostname string) error {
	used := map[int]usages{} // by row
	for _, sample := range samples {
		id, err := deviceID(names.idType, sample.gpu)
		if err != nil && names.pods != nil {
			return err
		}
		if names.virtual && len(names.pods[id]) > 0 {
			used[sample.row] = names.usages(sample)
		}
	}
	for _, wanted := range counters {
		if wanted.kind == "label" || !slices.ContainsFunc(samples, func(s sample) bool { return s.values[wanted.field] != "" }) {
			continue
		}
		fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", wanted.field, wanted.help, wanted.field, wanted.kind)
		for _, sample := range samples {
			value, there := sample.values[wanted.field]
			if !there {
				continue
			}
			id, _ := deviceID(names.idType, sample.gpu)
			for _, row := range names.lines(wanted.field, value, names.pods[id], used[sample.row]) {
				attributes := row.labels
				if wanted.field == xidField {
					attributes = append(attributes, label{"err_code", value}, label{"err_msg", xidMeaning(value)})
				}
				slices.SortFunc(attributes, func(a, b label) int { return strings.Compare(a.name, b.name) })
				fmt.Fprintf(out, "%s{%s} %s\n", wanted.field, render(append(identity(sample, counters, hostname), attributes...)), row.value)
			}
		}
	}
	return nil
}

// identity has the labels that say which GPU, then those that are counters of type label.
func identity(s sample, counters []counter, hostname string) []label {
	labels := []label{
		{"gpu", fmt.Sprint(s.index)},
		{"UUID", s.uuid},
		{"pci_bus_id", s.address},
		{"device", s.device},
		{"modelName", s.model},
	}
	if s.profile != "" {
		labels = append(labels, label{"GPU_I_PROFILE", s.profile}, label{"GPU_I_ID", fmt.Sprint(s.instance)})
	}
	labels = append(labels, label{"hostname", hostname})
	for _, counter := range counters {
		if value, there := s.values[counter.field]; there && counter.kind == "label" {
			labels = append(labels, label{counter.field, value})
		}
	}
	return labels
}

// lines of a GPU: one without a pod for an idle one, one with the last holder for one that is shared, unless each holder is to have a
// line. Then what processes take is the pod's own in it, beside a line of the whole GPU; all else repeats the value of the GPU.
func (n naming) lines(field, value string, held []holder, used usages) []line {
	if len(held) == 0 {
		return []line{{nil, value}}
	}
	if !n.virtual {
		return []line{{held[len(held)-1].labels(n.uids), value}}
	}
	ofProcesses := field == utilField || field == memoryField
	var lines []line
	if ofProcesses {
		lines = append(lines, line{nil, value})
	}
	for _, pod := range held {
		row := line{pod.labels(n.uids || ofProcesses), value}
		if ofProcesses {
			row.value = used.value(field, pod.uid)
		}
		if pod.replica != "" {
			row.labels = append(row.labels, label{"vgpu", pod.replica})
		}
		lines = append(lines, row)
	}
	return lines
}

func (h holder) labels(uid bool) []label {
	labels := []label{{"container", h.container}, {"namespace", h.namespace}, {"pod", h.pod}}
	if uid {
		labels = append(labels, label{"pod_uid", h.uid})
	}
	return labels
}

func xidMeaning(code string) string {
	if meaning, known := xidMeanings[code]; known {
		return meaning
	}
	return "Unknown Error"
}

var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func render(labels []label) string {
	texts := make([]string, len(labels))
	for i, pair := range labels {
		texts[i] = pair.name + `="` + escaper.Replace(pair.value) + `"`
	}
	return strings.Join(texts, ",")
}
