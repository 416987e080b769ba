package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"strings"
)

// counter is a row of the counter file.
type counter struct{ field, kind, help string }

var kinds = []string{"gauge", "counter", "histogram", "summary", "label"}

// readCounters reads rows `FIELD, type, help`. As upstream, an unknown field stops the exporter.
func readCounters(file string) ([]counter, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	reader := csv.NewReader(strings.NewReader(string(content)))
	reader.Comment = '#'
	reader.FieldsPerRecord = 3
	reader.TrimLeadingSpace = true
	rows, err := reader.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w; a row is FIELD, type, help without a comma", file, err)
	}
	var counters []counter
	for _, row := range rows {
		found := counter{strings.TrimSpace(row[0]), strings.TrimSpace(row[1]), strings.TrimSpace(row[2])}
		if _, known := readers[found.field]; !known {
			return nil, fmt.Errorf("%s: field %s is not known", file, found.field)
		}
		if !slices.Contains(kinds, found.kind) {
			return nil, fmt.Errorf("%s: type %s of %s is none of %v", file, found.kind, found.field, kinds)
		}
		counters = append(counters, found)
	}
	return counters, nil
}
