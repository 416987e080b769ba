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

// write prints all counters in Prometheus' text format: a line a GPU, or one a sharing pod with virtual GPUs.
func write(out io.Writer, counters []counter, samples []sample, pods holders, hostname string, virtual bool) {
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
			for _, attributes := range attributeSets(pods[sample.uuid], virtual) {
				if wanted.field == xidField {
					attributes = append(attributes, label{"err_code", value}, label{"err_msg", xidMeaning(value)})
				}
				slices.SortFunc(attributes, func(a, b label) int { return strings.Compare(a.name, b.name) })
				fmt.Fprintf(out, "%s{%s} %s\n", wanted.field, render(append(identity(sample, counters, hostname), attributes...)), value)
			}
		}
	}
}

// identity has the labels that say which GPU, then those that are counters of type label.
func identity(s sample, counters []counter, hostname string) []label {
	labels := []label{
		{"gpu", fmt.Sprint(s.index)},
		{"UUID", s.uuid},
		{"pci_bus_id", s.address},
		{"device", s.device},
		{"modelName", s.model},
		{"Hostname", hostname},
	}
	for _, each := range counters {
		if value, there := s.values[each.field]; there && each.kind == "label" {
			labels = append(labels, label{each.field, value})
		}
	}
	return labels
}

// attributeSets has a set of pod labels for each line of a GPU: none for an idle one, the last holder's for one that is shared
// unless each holder is to have a line.
func attributeSets(held []holder, virtual bool) [][]label {
	if len(held) == 0 {
		return [][]label{nil}
	}
	if !virtual {
		held = held[len(held)-1:]
	}
	var sets [][]label
	for _, each := range held {
		set := []label{{"container", each.container}, {"namespace", each.namespace}, {"pod", each.pod}}
		if virtual && each.replica != "" {
			set = append(set, label{"vgpu", each.replica})
		}
		sets = append(sets, set)
	}
	return sets
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
	for i, each := range labels {
		texts[i] = each.name + `="` + escaper.Replace(each.value) + `"`
	}
	return strings.Join(texts, ",")
}
